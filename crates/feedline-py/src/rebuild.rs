//! From a received batch back to what the loader yielded, in the types that it yielded or that were asked for.

use std::collections::HashMap;

use feedline_core::batch::{Received, Value};
use feedline_core::schema::{ArrayKind, DType};
use feedline_core::{Class, Explanation, Key, Node, Plain, Scalar, Subclass};
use feedline_shm::Window;
use pyo3::exceptions::{PyException, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyComplex, PyDict, PyList, PyString, PyTuple};

use crate::errors::invalid;
use crate::once::{imported, intern, remember};
use crate::tensor::Exported;

/// What arrays become.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    AsYielded,
    Torch,
    Numpy,
    Jax,
}

impl Format {
    pub fn parse(text: Option<&str>) -> Result<Self, String> {
        Ok(match text {
            None => Self::AsYielded,
            Some("torch") => Self::Torch,
            Some("numpy") => Self::Numpy,
            Some("jax") => Self::Jax,
            Some(other) => return Err(format!("format={other:?} is not one of None, \"torch\", \"numpy\", \"jax\"")),
        })
    }
}

/// Rebuilds batches for one consumer.
pub struct Rebuilder {
    format: Format,
    allow_pickle: bool,
    /// Hand on a batch's sample numbers.
    with_ids: bool,
    /// Record classes that were found or made, by the names of their fields too.
    classes: HashMap<(Class, Vec<String>), Py<PyAny>>,
}

impl Rebuilder {
    pub fn new(format: Format, allow_pickle: bool, with_ids: bool) -> Self {
        Self { format, allow_pickle, with_ids, classes: HashMap::new() }
    }

    /// Rebuilds a batch. On an error nothing of it is lost.
    pub fn batch<'py>(&mut self, py: Python<'py>, received: &Received) -> PyResult<Bound<'py, PyAny>> {
        let Received { structure, values } = received;
        if self.with_ids && !structure.is_numbered() {
            return Err(no_numbers(py));
        }
        let mut nodes = structure.0.iter();
        let mut values = values.iter();
        self.node(py, &mut nodes, &mut values).map_err(|error| {
            // Ctrl-C stays Ctrl-C, wherever it comes.
            if !error.is_instance_of::<PyException>(py) {
                return error;
            }
            // The leaf that failed is the last one that was taken.
            let failed = received.values.len().saturating_sub(values.len() + 1);
            let path = structure.paths().into_iter().nth(failed).unwrap_or_default();
            match schema_error(py, format!("batch{path}: {}", error.value(py))) {
                Ok(named) => {
                    named.set_cause(py, Some(error));
                    named
                }
                Err(other) => other,
            }
        })
    }

    fn node<'py>(
        &mut self,
        py: Python<'py>,
        nodes: &mut std::slice::Iter<'_, Node>,
        values: &mut std::slice::Iter<'_, Value>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let broken = || PyValueError::new_err("a batch does not fit its structure");
        let node = nodes.next().ok_or_else(broken)?;
        if let Node::Leaf = node {
            return self.value(py, values.next().ok_or_else(broken)?);
        }
        if let Node::Numbered = node {
            let batch = self.node(py, nodes, values)?;
            if !self.with_ids {
                // The numbers are the last leaf: nobody needs a tensor over them.
                return Ok(batch);
            }
            let _leaf = nodes.next();
            let numbers = match values.next().ok_or_else(broken)? {
                // A sample that was not collated, and has one number.
                Value::Array { dtype, order, shape, window, .. } if shape.is_empty() => {
                    self.array(py, ArrayKind::Torch, Exported::new(window.clone(), *dtype, vec![1], order.clone()))?
                }
                numbers => self.value(py, numbers)?,
            };
            return Ok(PyTuple::new(py, [batch, numbers])?.into_any());
        }
        let mut children = Vec::with_capacity(node.children());
        for _ in 0..node.children() {
            children.push(self.node(py, nodes, values)?);
        }
        Ok(match node {
            Node::Leaf | Node::Numbered => unreachable!("handled above"),
            Node::Tuple(_) => PyTuple::new(py, children)?.into_any(),
            Node::List(_) => PyList::new(py, children)?.into_any(),
            Node::Dict(keys) => dict(py, keys, children)?.into_any(),
            Node::Mapping(class, keys) => {
                let plain = dict(py, keys, children)?;
                records(py)?.call_method1("mapping", (&class.module, &class.name, plain))?
            }
            Node::NamedTuple(class, fields) => {
                let class = self.class(py, "named_tuple", class, fields)?;
                class.call_method1(intern!(py, "_make"), (PyTuple::new(py, children)?,))?
            }
            Node::Dataclass(class, fields) => {
                let class = self.class(py, "dataclass", class, fields)?;
                records(py)?.call_method1("fill", (class, fields, children))?
            }
        })
    }

    fn class<'py>(
        &mut self,
        py: Python<'py>,
        finder: &str,
        class: &Class,
        fields: &[String],
    ) -> PyResult<Bound<'py, PyAny>> {
        let key = (class.clone(), fields.to_vec());
        if let Some(found) = self.classes.get(&key) {
            return Ok(found.bind(py).clone());
        }
        let found = records(py)?.call_method1(finder, (&class.module, &class.name, fields))?;
        self.classes.insert(key, found.clone().unbind());
        Ok(found)
    }

    fn value<'py>(&mut self, py: Python<'py>, value: &Value) -> PyResult<Bound<'py, PyAny>> {
        Ok(match value {
            Value::Array { kind, dtype, shape, order, subclass, window } => {
                let exported = Exported::new(window.clone(), *dtype, shape.clone(), order.clone());
                let array = self.array(py, *kind, exported)?;
                return match (subclass, self.format) {
                    (Some(subclass), Format::AsYielded | Format::Torch) => self.with_class(py, array, subclass),
                    _ => Ok(array),
                };
            }
            Value::Nothing => py.None().into_bound(py),
            Value::Bool(value) => value.into_pyobject(py)?.to_owned().into_any(),
            Value::Int(value) => value.into_pyobject(py)?.into_any(),
            Value::BigInt(text) => py.get_type::<pyo3::types::PyInt>().call1((text,))?,
            Value::Float(value) => value.into_pyobject(py)?.into_any(),
            Value::Complex(re, im) => PyComplex::from_doubles(py, *re, *im).into_any(),
            Value::Str(text) => PyString::new(py, text).into_any(),
            Value::Bytes(window) => bytes(py, window)?.into_any(),
            Value::Pickle(window) => {
                if !self.allow_pickle {
                    let message = "a pickled object, which can run any code when it is loaded\n  if you trust the feed's \
                                   server, attach with allow_pickle=True";
                    return Err(pyo3::exceptions::PyTypeError::new_err(message));
                }
                py.import("pickle")?.call_method1("loads", (bytes(py, window)?,))?
            }
        })
    }

    fn array<'py>(&self, py: Python<'py>, kind: ArrayKind, exported: Exported) -> PyResult<Bound<'py, PyAny>> {
        match (self.format, kind) {
            (Format::Torch, _) | (Format::AsYielded, ArrayKind::Torch) => torch_tensor(py, &exported),
            (Format::Jax, _) => {
                let exported = Bound::new(py, exported)?;
                py.import("jax.dlpack")?.call_method1("from_dlpack", (exported,))
            }
            (Format::Numpy, _) | (Format::AsYielded, ArrayKind::Numpy | ArrayKind::NumpyScalar) => {
                static NDARRAY: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
                let dims = PyTuple::new(py, exported.shape())?;
                let (dtype, strides) = (numpy_dtype(py, exported.dtype())?, exported.strides_bytes());
                let exported = Bound::new(py, exported)?;
                let ndarray = imported(&NDARRAY, py, "numpy", "ndarray")?;
                let array = match strides {
                    None => ndarray.call1((dims, dtype, exported)),
                    Some(strides) => ndarray.call1((dims, dtype, exported, 0, PyTuple::new(py, strides)?)),
                }?;
                if kind == ArrayKind::NumpyScalar && self.format == Format::AsYielded {
                    return array.get_item(PyTuple::empty(py));
                }
                Ok(array)
            }
        }
    }
}

/// A tensor over what is exported.
pub fn torch_tensor<'py>(py: Python<'py>, exported: &Exported) -> PyResult<Bound<'py, PyAny>> {
    static FROM_DLPACK: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let from_dlpack = remember(&FROM_DLPACK, py, || {
        // The function behind torch.from_dlpack, without its checks, which a capsule of ours doesn't need.
        let direct = py.import("torch")?.getattr("_C")?.getattr_opt("_from_dlpack")?;
        Ok(match direct {
            Some(direct) => direct,
            None => py.import("torch.utils.dlpack")?.getattr("from_dlpack")?,
        }
        .unbind())
    })?;
    from_dlpack.bind(py).call1((exported.capsule(py)?,))
}

/// The class of a tensor, with its attributes.
impl Rebuilder {
    fn with_class<'py>(
        &mut self,
        py: Python<'py>,
        tensor: Bound<'py, PyAny>,
        subclass: &Subclass,
    ) -> PyResult<Bound<'py, PyAny>> {
        let class = self.class(py, "tensor_class", &subclass.class, &[])?;
        let attributes = PyDict::new(py);
        for (name, value) in &subclass.attributes {
            let list = |parts: &[Scalar]| parts.iter().map(|part| scalar(py, part)).collect::<PyResult<Vec<_>>>();
            let value = match value {
                Plain::Scalar(value) => scalar(py, value)?,
                Plain::Tuple(parts) => PyTuple::new(py, list(parts)?)?.into_any(),
                Plain::List(parts) => PyList::new(py, list(parts)?)?.into_any(),
            };
            attributes.set_item(name, value)?;
        }
        records(py)?.call_method1("tensor_of_class", (tensor, class, attributes))
    }
}

fn scalar<'py>(py: Python<'py>, scalar: &Scalar) -> PyResult<Bound<'py, PyAny>> {
    Ok(match scalar {
        Scalar::Nothing => py.None().into_bound(py),
        Scalar::Bool(value) => value.into_pyobject(py)?.to_owned().into_any(),
        Scalar::Int(value) => value.into_pyobject(py)?.into_any(),
        Scalar::Float(bits) => f64::from_bits(*bits).into_pyobject(py)?.into_any(),
        Scalar::Str(text) => PyString::new(py, text).into_any(),
        Scalar::Member(class, name) => records(py)?.call_method1("enum_member", (&class.module, &class.name, name))?,
    })
}

/// The exception for a consumer that asks for sample numbers where there are none.
pub fn no_numbers(py: Python<'_>) -> PyErr {
    let hint = "feedline.DataLoader(dataset, name=...) gives them, for datasets whose samples have numbers; or leave with_ids out";
    invalid(py, Explanation::new("with_ids=True: this feed's batches come without sample numbers").hint(hint))
}

fn bytes<'py>(py: Python<'py>, window: &Window) -> PyResult<Bound<'py, PyBytes>> {
    PyBytes::new_with(py, window.len_bytes(), |out| {
        window.copy_into(0, out);
        Ok(())
    })
}

fn schema_error(py: Python<'_>, message: String) -> PyResult<PyErr> {
    let class = py.import("feedline._errors")?.getattr("SchemaError")?.cast_into()?;
    Ok(PyErr::from_type(class, (message,)))
}

fn numpy_dtype<'py>(py: Python<'py>, dtype: DType) -> PyResult<Bound<'py, PyAny>> {
    static DTYPES: PyOnceLock<Py<PyDict>> = PyOnceLock::new();
    let known = remember(&DTYPES, py, || Ok(PyDict::new(py).unbind()))?.bind(py);
    if let Some(found) = known.get_item(dtype.name())? {
        return Ok(found);
    }
    let found = records(py)?.call_method1("numpy_dtype", (dtype.name(),))?;
    known.set_item(dtype.name(), &found)?;
    Ok(found)
}

fn records(py: Python<'_>) -> PyResult<Bound<'_, PyModule>> {
    py.import("feedline._batch_classes")
}

fn dict<'py>(py: Python<'py>, keys: &[Key], children: Vec<Bound<'py, PyAny>>) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    for (key, child) in keys.iter().zip(children) {
        match key {
            Key::Str(key) => dict.set_item(key, child)?,
            Key::Int(key) => dict.set_item(key, child)?,
        }
    }
    Ok(dict)
}
