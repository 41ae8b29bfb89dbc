//! The random generators that a dataset may draw from: Python's, NumPy's and torch's. Each sample's draws are seeded by its own number.
//!
//! Seeding costs microseconds, and many datasets draw nothing. So only those generators are seeded that the dataset was seen to draw from:
//!
//! ```text
//!  after each run: has one changed that is not seeded? ──▶ it is, from now on, before each sample; the run is made again
//! ```
//!
//! Whether a generator has changed is seen in its memory, where it has an address that is documented or fixed by its type;
//! the self-test in `Watched::new` falls back to asking for the state.

use feedline_shm::SourceBytes;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;

use crate::tensor::exchange::{TensorReader, inner_bytes};

/// Where a generator's state can be seen.
enum Place {
    /// In the memory of this object.
    Inside { object: Py<PyAny>, offset: usize, len_bytes: usize },
    /// A function gives it: a tensor, or whatever can be written down.
    Asked(Py<PyAny>, TensorReader),
}

struct Watched {
    place: Place,
    seed: Py<PyAny>,
    get_state: Py<PyAny>,
    set_state: Py<PyAny>,
    /// Seeds are taken modulo two to the power of this.
    seed_bits: u32,
    /// As it was when last looked at.
    seen: Vec<u8>,
    is_drawn_from: bool,
}

/// What to call.
struct Calls<'py> {
    seed: Bound<'py, PyAny>,
    get_state: Bound<'py, PyAny>,
    set_state: Bound<'py, PyAny>,
    /// Draws something.
    draw: Bound<'py, PyAny>,
}

impl Watched {
    /// Whether draws are seen at the place is tried out; else the state is asked for. The generator is left as it was.
    fn new(place: Place, calls: Calls<'_>, seed_bits: u32) -> PyResult<Self> {
        let py = calls.seed.py();
        let before = calls.get_state.call0()?;
        let mut watched = Self {
            place,
            seed: calls.seed.unbind(),
            get_state: calls.get_state.clone().unbind(),
            set_state: calls.set_state.clone().unbind(),
            seed_bits,
            seen: Vec::new(),
            is_drawn_from: false,
        };
        watched.look(py)?;
        calls.draw.call0()?;
        if !watched.has_changed(py)? {
            watched.place = asked(&calls.get_state)?;
        }
        calls.set_state.call1((before,))?;
        watched.look(py)?;
        Ok(watched)
    }

    fn with<T>(&self, py: Python<'_>, look: impl FnOnce(SourceBytes<'_>) -> T) -> PyResult<T> {
        match &self.place {
            Place::Inside { object, offset, len_bytes } => {
                let object = object.bind(py);
                let bytes = inner_bytes(object, *offset, *len_bytes).unwrap_or_else(|| (&[]).into());
                Ok(look(bytes))
            }
            Place::Asked(ask, reader) => {
                let state = ask.bind(py).call0()?;
                if reader.reads(&state) {
                    let mut look = Some(look);
                    let seen = reader
                        .lend(&state, |lent| look.take().map(|look| look(lent.bytes.unwrap_or_else(|| (&[]).into()))));
                    if let Some(seen) = seen.flatten() {
                        return Ok(seen);
                    }
                    return Err(PyTypeError::new_err("a generator's state that has no bytes"));
                }
                let text = state.repr()?.to_string();
                Ok(look(text.as_bytes().into()))
            }
        }
    }

    fn look(&mut self, py: Python<'_>) -> PyResult<()> {
        self.seen = self.with(py, |bytes| bytes.to_vec())?;
        Ok(())
    }

    fn has_changed(&self, py: Python<'_>) -> PyResult<bool> {
        self.with(py, |bytes| !bytes.is_equal(&self.seen))
    }

    fn seed(&self, py: Python<'_>, draw: u64) -> PyResult<()> {
        let seed = if self.seed_bits < 64 { draw & ((1 << self.seed_bits) - 1) } else { draw };
        self.seed.bind(py).call1((seed,)).map(drop)
    }
}

/// The states of some generators.
pub struct Saved(Vec<(Py<PyAny>, Py<PyAny>)>);

impl Saved {
    pub fn restore(self, py: Python<'_>) -> PyResult<()> {
        self.0.into_iter().try_for_each(|(set, state)| set.bind(py).call1((state,)).map(drop))
    }
}

/// All of them.
pub struct Generators {
    watched: Vec<Watched>,
    /// A batch was made in this process.
    has_begun: bool,
}

impl Generators {
    /// Those of this process. The ones that can be looked at cheaply are asked each time.
    pub fn new(py: Python<'_>) -> PyResult<Self> {
        let mut watched = vec![python(py)?, torch(py)?];
        if let Ok(numpy) = py.import("numpy.random") {
            watched.push(self::numpy(&numpy)?);
        }
        Ok(Self { watched, has_begun: false })
    }

    /// What they all look like now: Python's, torch's, and NumPy's if it is there.
    pub fn states(&self, py: Python<'_>) -> PyResult<Vec<Vec<u8>>> {
        self.watched.iter().map(|watched| watched.with(py, |bytes| bytes.to_vec())).collect()
    }

    /// In a process that draws for itself, too: the states of those that will be seeded. What counts for the others is what changes
    /// from now on. (One that the dataset draws from for the first time in a later batch stays where that left it, once.)
    pub fn save(&mut self, py: Python<'_>) -> PyResult<Saved> {
        let mut saved = Vec::new();
        for watched in &mut self.watched {
            if watched.is_drawn_from || !self.has_begun {
                saved.push((watched.set_state.clone_ref(py), watched.get_state.bind(py).call0()?.unbind()));
            }
            if !watched.is_drawn_from {
                watched.look(py)?;
            }
        }
        self.has_begun = true;
        Ok(Saved(saved))
    }

    /// Before a sample: `draw` seeds what the dataset draws from.
    pub fn begin_sample(&self, py: Python<'_>, draw: u64) -> PyResult<()> {
        let watched = self.watched.iter().filter(|watched| watched.is_drawn_from);
        watched.into_iter().try_for_each(|watched| watched.seed(py, draw))
    }

    /// After a run: whether a generator was drawn from that had not been seeded. It is, from now on.
    pub fn has_missed_one(&mut self, py: Python<'_>) -> PyResult<bool> {
        let mut has_missed = false;
        for watched in self.watched.iter_mut().filter(|watched| !watched.is_drawn_from) {
            if watched.has_changed(py)? {
                (watched.is_drawn_from, has_missed) = (true, true);
            }
        }
        Ok(has_missed)
    }

    /// Whether the dataset was seen to draw.
    pub fn is_any_drawn_from(&self) -> bool {
        self.watched.iter().any(|watched| watched.is_drawn_from)
    }
}

fn asked(get_state: &Bound<'_, PyAny>) -> PyResult<Place> {
    let tensor = get_state.py().import("torch")?.getattr("Tensor")?.cast_into()?;
    Ok(Place::Asked(get_state.clone().unbind(), TensorReader::new(&tensor)))
}

fn python(py: Python<'_>) -> PyResult<Watched> {
    let random = py.import("random")?;
    // The instance whose methods are the module's functions.
    let instance = random.getattr("_inst")?;
    let base = py.import("_random")?.getattr("Random")?;
    let offset = py.import("builtins")?.getattr("object")?.getattr("__basicsize__")?.extract::<usize>()?;
    let len_bytes = base.getattr("__basicsize__")?.extract::<usize>()?.saturating_sub(offset);
    let calls = Calls {
        seed: random.getattr("seed")?,
        get_state: random.getattr("getstate")?,
        set_state: random.getattr("setstate")?,
        draw: random.getattr("random")?,
    };
    Watched::new(Place::Inside { object: instance.unbind(), offset, len_bytes }, calls, 64)
}

fn numpy(random: &Bound<'_, PyModule>) -> PyResult<Watched> {
    let generator = random.getattr("mtrand")?.getattr("_rand")?.getattr("_bit_generator")?;
    let address: usize = generator.getattr("ctypes")?.getattr("state_address")?.extract()?;
    // 624 words and the place in them.
    let (offset, len_bytes) = (address.wrapping_sub(generator.as_ptr() as usize), 625 * 4);
    let calls = Calls {
        seed: random.getattr("seed")?,
        get_state: random.getattr("get_state")?,
        set_state: random.getattr("set_state")?,
        draw: random.getattr("random_sample")?,
    };
    Watched::new(Place::Inside { object: generator.unbind(), offset, len_bytes }, calls, 32)
}

fn torch(py: Python<'_>) -> PyResult<Watched> {
    let torch = py.import("torch")?;
    let generator = torch.getattr("default_generator")?;
    let calls = Calls {
        seed: generator.getattr("manual_seed")?,
        get_state: generator.getattr("get_state")?,
        set_state: generator.getattr("set_state")?,
        draw: py.import("functools")?.call_method1("partial", (torch.getattr("randperm")?, 2))?,
    };
    Watched::new(asked(&generator.getattr("get_state")?)?, calls, 63)
}
