//! From what a loader yields to a batch: the nesting, and every leaf's bytes where they lie.

use feedline_core::batch::{Array, Batch, Leaf};
use feedline_core::schema::{ArrayKind, DType};
use feedline_core::{Class, Failure, FailureKind, Key, MAX_ENTRIES, Node, Structure};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBool, PyBytes, PyComplex, PyDict, PyFloat, PyInt, PyList, PyMapping, PyString, PyTuple, PyType};

use crate::tensor::{Borrowed, Described, Unfit, describe_array, describe_capsule};

const MAX_DEPTH: usize = 60;

/// A batch that owns, through Python, what it points at.
#[derive(Default)]
pub struct Flat {
    structure: Structure,
    leaves: Vec<Owned>,
}

enum Owned {
    Array(ArrayKind, Described),
    Bytes(Borrowed),
    Plain(Leaf<'static>),
}

impl Flat {
    /// The same, borrowed.
    pub fn as_batch(&self) -> Batch<'_> {
        Batch { structure: self.structure.clone(), leaves: self.leaves.iter().map(Owned::as_leaf).collect() }
    }
}

impl Owned {
    fn as_leaf(&self) -> Leaf<'_> {
        match self {
            Self::Array(kind, Described { dtype, shape, data }) => {
                Leaf::Array(Array { kind: *kind, dtype: *dtype, shape: shape.clone(), data: data.as_slice() })
            }
            Self::Bytes(bytes) => Leaf::Bytes(bytes.as_slice()),
            Self::Plain(leaf) => leaf.clone(),
        }
    }
}

/// Why an object can't be flattened.
pub enum Refusal {
    /// It is of a kind that feeds don't carry.
    Unsupported(String),
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
        return Err(Refusal::Unsupported(format!(
            "a batch has {entries} parts where {MAX_ENTRIES} are possible; stack them into arrays"
        )));
    }
    Ok(walk.flat)
}

/// A refusal in words for everybody.
pub fn failure(py: Python<'_>, refusal: &Refusal) -> Failure {
    let message = match refusal {
        Refusal::Unsupported(message) => message.clone(),
        Refusal::Raised(error) => format!("a batch could not be read: {}", error.value(py)),
    };
    Failure::new(FailureKind::Schema, message)
}

struct Walk {
    types: &'static Types,
    flat: Flat,
    allow_pickle: bool,
    depth: usize,
}

/// Types that are looked for in every batch. torch's are there only once somebody else has imported it.
struct Types {
    ndarray: Option<Py<PyType>>,
    generic: Option<Py<PyType>>,
}

fn types(py: Python<'_>) -> PyResult<&'static Types> {
    static TYPES: PyOnceLock<Types> = PyOnceLock::new();
    TYPES.get_or_try_init(py, || {
        let numpy = py.import("numpy").ok();
        let get =
            |name: &str| -> Option<Py<PyType>> { Some(numpy.as_ref()?.getattr(name).ok()?.cast_into().ok()?.unbind()) };
        Ok(Types { ndarray: get("ndarray"), generic: get("generic") })
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
    Some(TENSOR.get_or_init(py, || tensor.unbind()).bind(py))
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
                    self.children(Node::NamedTuple(class(object)?, fields.extract()?), tuple.iter().map(Ok))
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
            Leaf::Str(
                text.map_err(|_| Refusal::Unsupported(format!("{} is a str that is not valid Unicode", self.name())))?,
            )
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
            return Err(Refusal::Unsupported(format!("a batch is nested more than {MAX_DEPTH} levels deep")));
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
                Refusal::Unsupported(format!("the dict at {dict} has the key {key}; use str, or int of up to 64 bits"))
            })
        })
        .collect()
    }

    /// The leaf that is being visited, as a user would write it.
    fn name(&self) -> String {
        // Written out only for an error: the walk so far, with one more leaf, has the path as its last.
        let mut nodes = self.flat.structure.clone();
        nodes.0.push(Node::Leaf);
        format!("batch{}", nodes.paths().last().map_or("", String::as_str))
    }

    fn tensor(&mut self, tensor: &Bound<'_, PyAny>) -> Result<(), Refusal> {
        static TO_DLPACK: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let py = tensor.py();
        let to_dlpack = TO_DLPACK.import(py, "torch.utils.dlpack", "to_dlpack")?;
        let mut tensor = tensor.clone();
        for name in [intern!(py, "is_conj"), intern!(py, "is_neg")] {
            // Lazily conjugated or negated: the bytes aren't the values yet.
            if tensor.call_method0(name)?.is_truthy()? {
                tensor = tensor.call_method0("resolve_conj")?.call_method0("resolve_neg")?;
            }
        }
        for _ in 0..3 {
            let capsule = match to_dlpack.call1((&tensor,)) {
                Ok(capsule) => capsule,
                Err(error) => {
                    let layout = tensor.getattr("layout")?;
                    return self.unfit(&tensor, &format!("a tensor of layout {layout}: {}", error.value(py)));
                }
            };
            match describe_capsule(&capsule)? {
                Ok(described) => {
                    self.leaf(Owned::Array(ArrayKind::Torch, described));
                    return Ok(());
                }
                Err(Unfit::Strided) => tensor = tensor.call_method0(intern!(py, "contiguous"))?,
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
        if array.get_type().module()?.to_str()?.starts_with("numpy.ma") {
            return self.unfit(array, "a masked array, whose mask would be lost");
        }
        let Some(known) = numpy_dtype(&name) else { return self.unfit(array, &format!("its dtype is {dtype}")) };
        let mut array = array.clone();
        if !dtype.getattr(intern!(py, "isnative"))?.is_truthy()? {
            array = array.call_method1("astype", (dtype.call_method1("newbyteorder", ("=",))?,))?;
        }
        let described = match describe_array(&array, known)? {
            Ok(described) => described,
            Err(_) => {
                let dense = py.import("numpy")?.call_method1("ascontiguousarray", (&array,))?;
                match describe_array(&dense, known)? {
                    Ok(described) => described,
                    Err(_) => return self.unfit(&array, "it is not contiguous"),
                }
            }
        };
        self.leaf(Owned::Array(kind, described));
        Ok(())
    }

    /// A tensor that has no plain bytes of a known type can still be pickled.
    fn unfit(&mut self, object: &Bound<'_, PyAny>, why: &str) -> Result<(), Refusal> {
        if !self.allow_pickle {
            return Err(Refusal::Unsupported(format!(
                "{} cannot be shared: {why}\n  convert it in the loader, or give allow_pickle=True to the server and to attach()",
                self.name(),
            )));
        }
        let leaf = self.pickle(object)?;
        self.leaf(Owned::Plain(leaf));
        Ok(())
    }

    fn pickle(&self, object: &Bound<'_, PyAny>) -> Result<Leaf<'static>, Refusal> {
        if !self.allow_pickle {
            return Err(Refusal::Unsupported(format!(
                "{} is of type {}, which a feed carries only pickled\n  yield tensors, arrays, numbers or strings instead, or give \
                 allow_pickle=True to the server and to attach()",
                self.name(),
                type_name(object),
            )));
        }
        let py = object.py();
        let bytes = py
            .import("pickle")?
            .call_method1("dumps", (object, 5))
            .map_err(|error| Refusal::Unsupported(format!("{} cannot be pickled: {}", self.name(), error.value(py))))?;
        Ok(Leaf::Pickle(bytes.extract()?))
    }
}

fn numpy_dtype(name: &str) -> Option<DType> {
    use DType as D;
    let all = [D::Bool, D::I8, D::I16, D::I32, D::I64, D::U8, D::U16, D::U32, D::U64];
    let floats = [D::F16, D::BF16, D::F32, D::F64, D::C64, D::C128];
    all.into_iter().chain(floats).find(|dtype| dtype.name() == name)
}

fn class(object: &Bound<'_, PyAny>) -> PyResult<Class> {
    let class = object.get_type();
    Ok(Class { module: class.getattr("__module__")?.extract()?, name: class.getattr("__qualname__")?.extract()? })
}

fn type_name(object: &Bound<'_, PyAny>) -> String {
    class(object).map_or_else(
        |_| "?".into(),
        |class| match class.module.as_str() {
            "builtins" => class.name,
            module => format!("{module}.{}", class.name),
        },
    )
}
