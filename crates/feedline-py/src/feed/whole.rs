//! A consumer that takes batches of one size whole, where they can't be cut: if that is the very size that the loader makes.

use feedline_core::batch::{Received, Value};
use feedline_core::consumer::{Config, Consumer};
use feedline_core::schema::Schema;
use feedline_core::{Error, Explanation};

/// Batches that travel whole, for a consumer that asked for a size.
#[derive(Clone, Copy, Debug)]
pub struct AsAsked {
    size: u64,
    drop_last: bool,
}

/// Attaches; to batches that can't be cut, without the batch size that `config` asks for. From then on it has none.
pub fn attach(
    config: &mut Config,
    check: &mut dyn FnMut() -> Result<(), Error>,
) -> Result<(Consumer, Option<AsAsked>), Error> {
    let refused = match (Consumer::attach(config.clone(), check), config.batch_size) {
        (Err(refused @ Error::BatchSize(_)), Some(size)) => (refused, size),
        (attached, _) => return attached.map(|consumer| (consumer, None)),
    };
    let (refused, size) = refused;
    let whole = Config { batch_size: None, ..config.clone() };
    let consumer = Consumer::attach(whole.clone(), check)?;
    let Schema::Whole { why } = consumer.schema() else { return Err(refused) };
    let (name, own) = (&config.name, consumer.epoch_length().batch_size());
    let error = |what: String, hint: String| Err(Error::BatchSize(Explanation::new(what).hint(hint)));
    match own {
        Some(own) if own != size => error(
            format!(
                "feed {name:?} cannot give batches of {size}: its samples can't be cut out of their batches ({why}), so all jobs \
                 get those of {own} that its first job asked for"
            ),
            format!(
                "give this job batch_size={own} too, or a name of its own; or make the samples tensors and numbers of one shape"
            ),
        ),
        None => error(
            format!(
                "feed {name:?} cannot give batches of {size}: its samples can't be cut out of their batches ({why}), and how large \
                 those are is not known here"
            ),
            "make the samples tensors and numbers of one shape; or share the loader itself, for the batches as they are: \
             feedline.share(make_loader, name)"
                .into(),
        ),
        Some(_) if config.drop_last && config.shard.is_some() => error(
            format!(
                "feed {name:?} cannot leave out a smaller last batch for each rank alike: its samples can't be cut out of their \
                 batches ({why})"
            ),
            "leave out drop_last".into(),
        ),
        Some(_) => {
            let drop_last = config.drop_last;
            *config = whole;
            Ok((consumer, Some(AsAsked { size, drop_last })))
        }
    }
}

impl AsAsked {
    /// Whether a batch is the smaller one that `drop_last` leaves out.
    pub fn leaves_out(&self, batch: &Received) -> bool {
        let numbers = batch.values.last().filter(|_| self.drop_last && batch.structure.is_numbered());
        matches!(numbers, Some(Value::Array { shape, .. }) if shape.first().is_some_and(|&samples| samples < self.size))
    }

    /// How many batches there are, of an epoch with so many.
    pub fn batches(&self, batches: Option<u64>, samples: Option<u64>) -> Option<u64> {
        if self.drop_last { samples.map(|samples| samples / self.size) } else { batches }
    }
}
