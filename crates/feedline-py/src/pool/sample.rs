//! From a sample to its slots: the structure that all samples have, and one copy for each leaf.

use feedline_core::schema::DType;
use feedline_data::pool::Lanes;
use feedline_shm::SourceBytes;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyList, PyTuple, PyType};

use crate::flatten::numpy_dtype;
use crate::once::intern;
use crate::tensor::exchange::{Lent, TensorReader, lend_buffer};

/// How a sample is nested.
enum Tree {
    Leaf(usize),
    Tuple(Py<PyType>, Vec<Tree>),
    List(Vec<Tree>),
    Dict(Vec<(Py<PyAny>, Tree)>),
}

/// What stands at a leaf.
enum Kind {
    Tensor,
    Array(Py<PyAny>),
    /// A NumPy scalar of this class.
    Scalar(Py<PyAny>),
    Float,
    Int,
    Bool,
}

struct Leaf {
    kind: Kind,
    dtype: DType,
    shape: Vec<i64>,
    len_bytes: u64,
}

/// What all samples look like, as `feedline._sample` describes it.
pub struct Layout {
    tree: Tree,
    leaves: Vec<Leaf>,
    reader: TensorReader,
    pub lanes: Lanes,
}

/// Why a sample was not copied.
pub enum Unfit {
    /// It does not look like the others.
    Different,
    Raised(PyErr),
}

impl From<PyErr> for Unfit {
    fn from(error: PyErr) -> Self {
        Self::Raised(error)
    }
}

impl Layout {
    /// From `(structure, leaves)`.
    pub fn new(description: &Bound<'_, PyAny>) -> PyResult<Self> {
        let py = description.py();
        let (structure, leaves): (Bound<'_, PyAny>, Vec<Bound<'_, PyAny>>) = description.extract()?;
        let leaves = leaves.iter().map(leaf).collect::<PyResult<Vec<_>>>()?;
        let lanes = Lanes::new(leaves.iter().map(|leaf| leaf.len_bytes).collect());
        let tensor: Bound<'_, PyType> = py.import("torch")?.getattr("Tensor")?.cast_into()?;
        let reader = TensorReader::new(&tensor);
        Ok(Self { tree: tree(&structure)?, leaves, reader, lanes })
    }

    /// The leaves' types and shapes, in the order of the lanes.
    pub fn tensors(&self) -> impl Iterator<Item = (DType, &[i64])> {
        self.leaves.iter().map(|leaf| (leaf.dtype, leaf.shape.as_slice()))
    }

    /// Copies a sample's leaves, each by `write` with the lane's number.
    pub fn copy(&self, sample: &Bound<'_, PyAny>, write: &mut dyn FnMut(usize, SourceBytes<'_>)) -> Result<(), Unfit> {
        self.visit(&self.tree, sample, write)
    }

    fn visit(
        &self,
        tree: &Tree,
        object: &Bound<'_, PyAny>,
        write: &mut dyn FnMut(usize, SourceBytes<'_>),
    ) -> Result<(), Unfit> {
        match tree {
            Tree::Leaf(index) => self.leaf(*index, object, write),
            Tree::Tuple(class, parts) => {
                let tuple = object.cast::<PyTuple>().map_err(|_| Unfit::Different)?;
                if !object.get_type().is(class.bind(object.py())) || tuple.len() != parts.len() {
                    return Err(Unfit::Different);
                }
                (parts.iter().enumerate()).try_for_each(|(at, part)| self.visit(part, &tuple.get_item(at)?, write))
            }
            Tree::List(parts) => {
                let list = object.cast_exact::<PyList>().map_err(|_| Unfit::Different)?;
                if list.len() != parts.len() {
                    return Err(Unfit::Different);
                }
                (parts.iter().enumerate()).try_for_each(|(at, part)| self.visit(part, &list.get_item(at)?, write))
            }
            Tree::Dict(parts) => {
                let dict = object.cast_exact::<PyDict>().map_err(|_| Unfit::Different)?;
                if dict.len() != parts.len() {
                    return Err(Unfit::Different);
                }
                parts.iter().try_for_each(|(key, part)| {
                    let value = dict.get_item(key.bind(object.py()))?.ok_or(Unfit::Different)?;
                    self.visit(part, &value, write)
                })
            }
        }
    }

    fn leaf(
        &self,
        index: usize,
        object: &Bound<'_, PyAny>,
        write: &mut dyn FnMut(usize, SourceBytes<'_>),
    ) -> Result<(), Unfit> {
        let (py, leaf) = (object.py(), &self.leaves[index]);
        match &leaf.kind {
            Kind::Tensor => {
                if !self.reader.reads(object) || needs_torch(object, leaf.dtype)? {
                    return Err(Unfit::Different);
                }
                let copied = self.reader.lend(object, |lent| leaf.write(index, &lent, Some(leaf.dtype), write));
                match copied {
                    Some(Copied::Done) => Ok(()),
                    Some(Copied::HasGaps) => {
                        let dense = object.call_method0(intern!(py, "contiguous"))?;
                        match self.reader.lend(&dense, |lent| leaf.write(index, &lent, Some(leaf.dtype), write)) {
                            Some(Copied::Done) => Ok(()),
                            _ => Err(Unfit::Different),
                        }
                    }
                    Some(Copied::Not) | None => Err(Unfit::Different),
                }
            }
            Kind::Array(dtype) => {
                let is_plain = object.get_type().name().is_ok_and(|name| name == "ndarray");
                if !is_plain || !object.getattr(intern!(py, "dtype"))?.eq(dtype.bind(py))? {
                    return Err(Unfit::Different);
                }
                match lend_buffer(object, |lent| leaf.write(index, &lent, None, write)) {
                    Some(Copied::Done) => Ok(()),
                    Some(_) => Err(Unfit::Different),
                    None => {
                        let dense = py.import("numpy")?.call_method1("ascontiguousarray", (object,))?;
                        match lend_buffer(&dense, |lent| leaf.write(index, &lent, None, write)) {
                            Some(Copied::Done) => Ok(()),
                            _ => Err(Unfit::Different),
                        }
                    }
                }
            }
            Kind::Scalar(class) => {
                if !object.get_type().is(class.bind(py)) {
                    return Err(Unfit::Different);
                }
                match lend_buffer(object, |lent| leaf.write(index, &lent, None, write)) {
                    Some(Copied::Done) => Ok(()),
                    _ => Err(Unfit::Different),
                }
            }
            Kind::Float => {
                let value = object.cast_exact::<PyFloat>().map_err(|_| Unfit::Different)?.value();
                write(index, (&value.to_le_bytes()).into());
                Ok(())
            }
            Kind::Int => {
                let value = object.cast_exact::<PyInt>().map_err(|_| Unfit::Different)?;
                // torch says what is wrong with one that is too large.
                let value: i64 = value.extract().map_err(|_| Unfit::Different)?;
                write(index, (&value.to_le_bytes()).into());
                Ok(())
            }
            Kind::Bool => {
                let value = object.cast_exact::<PyBool>().map_err(|_| Unfit::Different)?.is_true();
                write(index, (&[u8::from(value)]).into());
                Ok(())
            }
        }
    }
}

/// Whether only torch knows what to do with a tensor: it has a gradient, or its bytes stand for others.
fn needs_torch(tensor: &Bound<'_, PyAny>, dtype: DType) -> PyResult<bool> {
    let py = tensor.py();
    if tensor.getattr(intern!(py, "requires_grad"))?.is_truthy()? {
        return Ok(true);
    }
    let is_floating = matches!(dtype, DType::F16 | DType::F32 | DType::F64);
    Ok(is_floating && tensor.call_method0(intern!(py, "is_neg"))?.is_truthy()?)
}

enum Copied {
    Done,
    HasGaps,
    Not,
}

impl Leaf {
    fn write(
        &self,
        index: usize,
        lent: &Lent<'_>,
        dtype: Option<DType>,
        write: &mut dyn FnMut(usize, SourceBytes<'_>),
    ) -> Copied {
        if lent.dtype != dtype || lent.shape != self.shape {
            return Copied::Not;
        }
        let Some(bytes) = lent.bytes else { return Copied::HasGaps };
        if bytes.len() as u64 != self.len_bytes {
            return Copied::Not;
        }
        if !bytes.is_empty() {
            write(index, bytes);
        }
        Copied::Done
    }
}

fn tree(structure: &Bound<'_, PyAny>) -> PyResult<Tree> {
    let (word, argument): (String, Bound<'_, PyAny>) = structure.extract()?;
    let parts = |parts: &Bound<'_, PyAny>| parts.try_iter()?.map(|part| tree(&part?)).collect::<PyResult<Vec<_>>>();
    Ok(match word.as_str() {
        "leaf" => Tree::Leaf(argument.extract()?),
        "list" => Tree::List(parts(&argument)?),
        "tuple" => {
            let (class, of): (Bound<'_, PyType>, Bound<'_, PyAny>) = argument.extract()?;
            Tree::Tuple(class.unbind(), parts(&of)?)
        }
        "dict" => {
            let entries = argument.try_iter()?.map(|entry| {
                let (key, part): (Py<PyAny>, Bound<'_, PyAny>) = entry?.extract()?;
                Ok((key, tree(&part)?))
            });
            Tree::Dict(entries.collect::<PyResult<Vec<_>>>()?)
        }
        other => return Err(PyValueError::new_err(format!("no structure is called {other}"))),
    })
}

fn leaf(description: &Bound<'_, PyAny>) -> PyResult<Leaf> {
    let (kind, dtype, shape, class): (String, String, Vec<i64>, Py<PyAny>) = description.extract()?;
    let dtype = numpy_dtype(&dtype).ok_or_else(|| PyTypeError::new_err(format!("no lane for {dtype}")))?;
    let kind = match kind.as_str() {
        "tensor" => Kind::Tensor,
        "array" => Kind::Array(class),
        "scalar" => Kind::Scalar(class),
        "float" => Kind::Float,
        "int" => Kind::Int,
        "bool" => Kind::Bool,
        other => return Err(PyValueError::new_err(format!("no leaf is called {other}"))),
    };
    let dims: Vec<u64> = shape.iter().map(|&dim| dim as u64).collect();
    let len_bytes = feedline_core::schema::len_bytes(dtype, &dims);
    let len_bytes = len_bytes.ok_or_else(|| PyTypeError::new_err("a sample that is too large"))?;
    Ok(Leaf { kind, dtype, shape, len_bytes })
}
