//! From what a loader yields to a batch: the nesting, and every leaf's bytes where they lie.

use std::sync::Arc;

use feedline_core::batch::{Array, Batch, Leaf};
use feedline_core::options::Name;
use feedline_core::schema::{ArrayKind, DType};
use feedline_core::{
    Class, DimOrder, Explanation, Failure, FailureKind, Key, MAX_ENTRIES, Node, Structure, Subclass, text,
};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBool, PyBytes, PyComplex, PyDict, PyFloat, PyInt, PyList, PyMapping, PyString, PyTuple, PyType};

use crate::once::{imported, intern, remember};
use crate::subclass::split;
use crate::tensor::{Borrowed, Described, Unfit, describe_array, describe_capsule};

const MAX_DEPTH: usize = 60;
/// The module of the one class that stands for [`Node::Numbered`].
const NUMBERED: &str = "feedline._numbered";

/// A batch that owns, through Python, what it points at.
#[derive(Default)]
pub struct Flat {
    structure: Structure,
    leaves: Vec<Owned>,
}

enum Owned {
    Array(ArrayKind, Described, Option<Arc<Subclass>>),
    Bytes(Borrowed),
    Plain(Leaf<'static>),
}

impl Flat {
    /// The same batch, borrowed.
    pub fn as_batch(&self) -> Batch<'_> {
        Batch { structure: self.structure.clone(), leaves: self.leaves.iter().map(Owned::as_leaf).collect() }
    }
}

impl Owned {
    fn as_leaf(&self) -> Leaf<'_> {
        match self {
            Self::Array(kind, Described { dtype, shape, order, data }, subclass) => Leaf::Array(Array {
                kind: *kind,
                dtype: *dtype,
                shape: shape.clone(),
                order: order.clone(),
                subclass: subclass.clone(),
                data: data.to_copy(),
            }),
            Self::Bytes(bytes) => Leaf::Bytes(bytes.to_copy()),
            Self::Plain(leaf) => leaf.clone(),
        }
    }
}

/// Why an object can't be flattened.
pub enum Refusal {
    /// It is of a kind that feeds don't carry.
    Unsupported(Explanation),
    /// Python raised.
    Raised(PyErr),
}

impl From<PyErr> for Refusal {
    fn from(error: PyErr) -> Self {
        Self::Raised(error)
    }
}

/// Flattens one batch.
pub fn flatten(object: &Bound<'_, PyAny>, allow_pickle: bool) -> Result<Flat, Refusal> {
    let mut walk = Walk { types: types(object.py())?, flat: Flat::default(), allow_pickle, depth: 0 };
    walk.visit(object)?;
    let entries = walk.flat.structure.0.len();
    if entries > MAX_ENTRIES {
        let what = format!("a batch has {entries} parts where {MAX_ENTRIES} are possible");
        return Err(Refusal::Unsupported(Explanation::new(what).hint("stack them into arrays")));
    }
    Ok(walk.flat)
}

/// A refusal in words for the server's caller and the consumers.
pub fn failure(py: Python<'_>, refusal: &Refusal) -> Failure {
    let message = match refusal {
        Refusal::Unsupported(message) => message.clone(),
        Refusal::Raised(error) => format!("a batch could not be read: {}", error.value(py)).into(),
    };
    Failure::new(FailureKind::Schema, message)
}

struct Walk {
    types: &'static Types,
    flat: Flat,
    allow_pickle: bool,
    depth: usize,
}

/// Types that are looked up for every batch. torch's exist only once somebody else has imported it.
struct Types {
    ndarray: Option<Py<PyType>>,
    generic: Option<Py<PyType>>,
    memmap: Option<Py<PyType>>,
}

fn types(py: Python<'_>) -> PyResult<&'static Types> {
    static TYPES: PyOnceLock<Types> = PyOnceLock::new();
    remember(&TYPES, py, || {
        let numpy = py.import("numpy").ok();
        let get =
            |name: &str| -> Option<Py<PyType>> { Some(numpy.as_ref()?.getattr(name).ok()?.cast_into().ok()?.unbind()) };
        Ok(Types { ndarray: get("ndarray"), generic: get("generic"), memmap: get("memmap") })
    })
}

/// `torch.Tensor`, if torch is in use.
fn tensor_type(py: Python<'_>) -> Option<&Bound<'_, PyType>> {
    static TENSOR: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    if let Some(tensor) = TENSOR.get(py) {
        return Some(tensor.bind(py));
    }
    let modules = py.import("sys").ok()?.getattr("modules").ok()?;
    let torch = modules.get_item("torch").ok()?;
    let tensor: Bound<'_, PyType> = torch.getattr("Tensor").ok()?.cast_into().ok()?;
    Some(remember(&TENSOR, py, || Ok(tensor.unbind())).ok()?.bind(py))
}

impl Walk {
    fn visit(&mut self, object: &Bound<'_, PyAny>) -> Result<(), Refusal> {
        let py = object.py();
        if let Some(tensor) = tensor_type(py)
            && object.is_instance(tensor)?
        {
            return self.tensor(object);
        }
        if let Some(ndarray) = &self.types.ndarray
            && object.is_instance(ndarray.bind(py))?
        {
            return self.array(object, ArrayKind::Numpy);
        }
        if let Ok(tuple) = object.cast::<PyTuple>() {
            if tuple.get_type().is(py.get_type::<PyTuple>()) {
                return self.children(Node::Tuple(tuple.len() as u32), tuple.iter().map(Ok));
            }
            let fields = object.getattr_opt(intern!(py, "_fields"))?;
            return match fields {
                Some(fields) => {
                    let class = class(object)?;
                    let is_numbered = self.flat.structure.0.is_empty() && class.module == NUMBERED;
                    let named = || Ok::<_, PyErr>(Node::NamedTuple(class, fields.extract()?));
                    self.children(if is_numbered { Node::Numbered } else { named()? }, tuple.iter().map(Ok))
                }
                None => self.children(Node::Tuple(tuple.len() as u32), tuple.iter().map(Ok)),
            };
        }
        if let Ok(list) = object.cast::<PyList>() {
            return self.children(Node::List(list.len() as u32), list.iter().map(Ok));
        }
        if let Ok(dict) = object.cast_exact::<PyDict>() {
            let keys = self.keys(dict.keys().iter())?;
            return self.children(Node::Dict(keys), dict.values().iter().map(Ok));
        }
        self.other(object)
    }

    fn other(&mut self, object: &Bound<'_, PyAny>) -> Result<(), Refusal> {
        let py = object.py();
        let leaf = if object.is_none() {
            Leaf::Nothing
        } else if let Ok(value) = object.cast::<PyBool>() {
            Leaf::Bool(value.is_true())
        } else if object.is_instance_of::<PyInt>() {
            match object.extract::<i64>() {
                Ok(value) => Leaf::Int(value),
                Err(_) => Leaf::BigInt(object.call_method0(intern!(py, "__repr__"))?.extract()?),
            }
        } else if let Some(generic) = &self.types.generic
            && object.is_instance(generic.bind(py))?
        {
            // A scalar's array interface is that of a temporary: make one that stays.
            let array = py.import("numpy")?.call_method1("asarray", (object,))?;
            return self.array(&array, ArrayKind::NumpyScalar);
        } else if let Ok(value) = object.cast::<PyFloat>() {
            Leaf::Float(value.value())
        } else if let Ok(value) = object.cast::<PyComplex>() {
            let (re, im) = (value.getattr(intern!(py, "real"))?, value.getattr(intern!(py, "imag"))?);
            Leaf::Complex(re.extract()?, im.extract()?)
        } else if let Ok(value) = object.cast::<PyString>() {
            let text: Result<String, _> = value.extract();
            Leaf::Str(text.map_err(|_| {
                Refusal::Unsupported(format!("{} is a str that is not valid Unicode", self.name()).into())
            })?)
        } else if let Ok(value) = object.cast::<PyBytes>() {
            self.leaf(Owned::Bytes(Borrowed::bytes(value)));
            return Ok(());
        } else if let Ok(mapping) = object.cast::<PyMapping>() {
            let keys = self.keys(mapping.keys()?.iter())?;
            return self.children(Node::Mapping(class(object)?, keys), mapping.values()?.iter().map(Ok));
        } else if object.hasattr(intern!(py, "__dataclass_fields__"))? && !object.is_instance_of::<PyType>() {
            let fields = py.import("dataclasses")?.call_method1("fields", (object,))?;
            let names: PyResult<Vec<String>> =
                fields.try_iter()?.map(|field| field?.getattr("name")?.extract()).collect();
            let names = names?;
            let values: Vec<_> = names.iter().map(|name| object.getattr(name.as_str())).collect();
            return self.children(Node::Dataclass(class(object)?, names), values.into_iter());
        } else if object.hasattr(intern!(py, "__dlpack__"))? || object.hasattr(intern!(py, "__array__"))? {
            let array = py.import("numpy")?.call_method1("asarray", (object,))?;
            return self.array(&array, ArrayKind::Numpy);
        } else {
            self.pickle(object)?
        };
        self.leaf(Owned::Plain(leaf));
        Ok(())
    }

    fn children<'py>(
        &mut self,
        node: Node,
        children: impl Iterator<Item = PyResult<Bound<'py, PyAny>>>,
    ) -> Result<(), Refusal> {
        self.flat.structure.0.push(node);
        if self.depth >= MAX_DEPTH {
            return Err(Refusal::Unsupported(format!("a batch is nested more than {MAX_DEPTH} levels deep").into()));
        }
        for child in children {
            self.depth += 1;
            self.visit(&child?)?;
            self.depth -= 1;
        }
        Ok(())
    }

    fn leaf(&mut self, owned: Owned) {
        self.flat.structure.0.push(Node::Leaf);
        self.flat.leaves.push(owned);
    }

    fn keys<'py>(&self, keys: impl Iterator<Item = Bound<'py, PyAny>>) -> Result<Vec<Key>, Refusal> {
        keys.map(|key| {
            if let Ok(text) = key.extract::<String>() {
                return Ok(Key::Str(text));
            }
            key.extract::<i64>().map(Key::Int).map_err(|_| {
                let dict = self.name();
                let what = Explanation::new(format!("the dict at {dict} has the key {key}"));
                Refusal::Unsupported(what.hint("use str, or int of up to 64 bits"))
            })
        })
        .collect()
    }

    /// The leaf that is being visited, as a user would write it.
    fn name(&self) -> String {
        // The path is written only for an error: it is the last one of the walk so far with one more leaf.
        let mut nodes = self.flat.structure.clone();
        nodes.0.push(Node::Leaf);
        format!("batch{}", nodes.paths().last().map_or("", String::as_str))
    }

    fn tensor(&mut self, tensor: &Bound<'_, PyAny>) -> Result<(), Refusal> {
        static TO_DLPACK: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let py = tensor.py();
        let (tensor, subclass) = match tensor_type(py) {
            Some(plain) if !tensor.get_type().is(plain) => match split(tensor) {
                Ok((plain, subclass)) => (plain, Some(Arc::new(subclass))),
                Err(Refusal::Unsupported(why)) => return self.unfit(tensor, &why.to_string()),
                Err(raised) => return Err(raised),
            },
            _ => (tensor.clone(), None),
        };
        let to_dlpack = imported(&TO_DLPACK, py, "torch.utils.dlpack", "to_dlpack")?;
        let mut tensor = tensor;
        for name in [intern!(py, "is_conj"), intern!(py, "is_neg")] {
            // Lazily conjugated or negated: the bytes aren't the values yet.
            if tensor.call_method0(name)?.is_truthy()? {
                tensor = tensor.call_method0("resolve_conj")?.call_method0("resolve_neg")?;
            }
        }
        // What it was before its elements were moved together.
        let mut spread: Option<(Vec<u64>, DimOrder)> = None;
        for _ in 0..3 {
            let capsule = match to_dlpack.call1((&tensor,)) {
                Ok(capsule) => capsule,
                Err(error) => {
                    let layout = tensor.getattr("layout")?;
                    return self.unfit(&tensor, &format!("a tensor of layout {layout}: {}", error.value(py)));
                }
            };
            match describe_capsule(&capsule)? {
                Ok(mut described) => {
                    if let Some((shape, order)) = spread {
                        (described.shape, described.order) = (shape, order);
                    }
                    self.leaf(Owned::Array(ArrayKind::Torch, described, subclass));
                    return Ok(());
                }
                Err(Unfit::Strided(order)) => {
                    let shape: Vec<u64> = tensor.getattr(intern!(py, "shape"))?.extract()?;
                    let permuted = tensor.call_method1("permute", (order.dims(shape.len()),))?;
                    tensor = permuted.call_method0(intern!(py, "contiguous"))?;
                    spread = Some((shape, order));
                }
                Err(Unfit::Device) => tensor = tensor.call_method0("cpu")?,
                Err(Unfit::DType) => return self.unfit(&tensor, &format!("its dtype is {}", tensor.getattr("dtype")?)),
            }
        }
        self.unfit(&tensor, "it is not contiguous")
    }

    fn array(&mut self, array: &Bound<'_, PyAny>, kind: ArrayKind) -> Result<(), Refusal> {
        let py = array.py();
        let dtype = array.getattr(intern!(py, "dtype"))?;
        let name: String = dtype.getattr(intern!(py, "name"))?.extract()?;
        let class = array.get_type();
        // A memmap arrives as an array; its file doesn't travel.
        let is_plain = [&self.types.ndarray, &self.types.memmap].into_iter().flatten().any(|plain| class.is(plain));
        if !is_plain {
            return self.unfit(array, &format!("a {}, of which only the elements would arrive", type_name(array)));
        }
        let Some(known) = numpy_dtype(&name) else { return self.unfit(array, &format!("its dtype is {dtype}")) };
        let mut array = array.clone();
        if !dtype.getattr(intern!(py, "isnative"))?.is_truthy()? {
            array = array.call_method1("astype", (dtype.call_method1("newbyteorder", ("=",))?,))?;
        }
        let described = match describe_array(&array, known)? {
            Ok(described) => described,
            Err(Unfit::Strided(order)) => {
                let shape: Vec<u64> = array.getattr(intern!(py, "shape"))?.extract()?;
                let permuted = array.call_method1("transpose", (order.dims(shape.len()),))?;
                let dense = py.import("numpy")?.call_method1("ascontiguousarray", (permuted,))?;
                match describe_array(&dense, known)? {
                    Ok(described) => Described { shape, order, ..described },
                    Err(_) => return self.unfit(&array, "it is not contiguous"),
                }
            }
            Err(Unfit::Device | Unfit::DType) => return self.unfit(&array, "it is not in host memory"),
        };
        self.leaf(Owned::Array(kind, described, None));
        Ok(())
    }

    /// A tensor that has no plain bytes of a known type can still be pickled.
    fn unfit(&mut self, object: &Bound<'_, PyAny>, why: &str) -> Result<(), Refusal> {
        if !self.allow_pickle {
            let what = format!("{} cannot be shared: {why}", self.name());
            return Err(unpickled(what, "convert it in the loader"));
        }
        let leaf = self.pickle(object)?;
        self.leaf(Owned::Plain(leaf));
        Ok(())
    }

    fn pickle(&self, object: &Bound<'_, PyAny>) -> Result<Leaf<'static>, Refusal> {
        if !self.allow_pickle {
            let what = format!("{} is of type {}, which a feed carries only pickled", self.name(), type_name(object));
            return Err(unpickled(what, "yield tensors, arrays, numbers or strings instead"));
        }
        let py = object.py();
        let bytes = py.import("pickle")?.call_method1("dumps", (object, 5)).map_err(|error| {
            Refusal::Unsupported(format!("{} cannot be pickled: {}", self.name(), error.value(py)).into())
        })?;
        Ok(Leaf::Pickle(bytes.extract()?))
    }
}

/// A refusal of what could be carried if pickles were allowed.
fn unpickled(what: String, instead: &str) -> Refusal {
    let pickled = Name::allow_pickle.of_value(true);
    let both = " to the server, and allow_pickle=True to attach()";
    Refusal::Unsupported(Explanation::new(what).hint(text![instead, ", or give ", pickled, both]))
}

pub fn numpy_dtype(name: &str) -> Option<DType> {
    use DType as D;
    let all = [D::Bool, D::I8, D::I16, D::I32, D::I64, D::U8, D::U16, D::U32, D::U64];
    let floats = [D::F16, D::BF16, D::F32, D::F64, D::C64, D::C128];
    all.into_iter().chain(floats).find(|dtype| dtype.name() == name)
}

pub fn class(object: &Bound<'_, PyAny>) -> PyResult<Class> {
    let class = object.get_type();
    Ok(Class { module: class.getattr("__module__")?.extract()?, name: class.getattr("__qualname__")?.extract()? })
}

pub fn type_name(object: &Bound<'_, PyAny>) -> String {
    class(object).map_or_else(
        |_| "?".into(),
        |class| match class.module.as_str() {
            "builtins" => class.name,
            module => format!("{module}.{}", class.name),
        },
    )
}
