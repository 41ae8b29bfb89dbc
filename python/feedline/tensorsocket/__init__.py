"""Scripts that were written for TensorSocket, on a feed: change the import, keep the rest.

    from feedline.tensorsocket import TensorProducer   # was: from tensorsocket import ...
    from feedline.tensorsocket import TensorConsumer

A port becomes a feed's name: 5555 is "tensorsocket-5555". What maps to what, and what is different,
is in docs/from-tensorsocket.md.
"""

from feedline.tensorsocket.consumer import TensorConsumer
from feedline.tensorsocket.payload import TensorPayload
from feedline.tensorsocket.producer import TensorProducer

__all__ = ["TensorConsumer", "TensorPayload", "TensorProducer"]
