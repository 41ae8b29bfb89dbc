//! What may be an epoch's last batch waits until it is known whether it is; nothing else does.

use super::*;

fn own_batches() -> Config {
    Config { batch_size: None, drop_last: true, ..config() }
}

#[test]
fn a_smaller_batch_of_the_source_waits_for_what_follows() {
    let (mut consumer, memory) = joined(own_batches(), Shape { source_batch: 4, ..shape() }, start());
    memory.source_batch.set(3);
    memory.head.publish(3);
    assert_eq!(consumer.next(&memory), Ok(Next::Wait), "it may be the last");
    memory.head.publish(6);
    assert_eq!(take(&mut consumer, &memory).until, 3);
    memory.head.end_epoch(0, 6);
    assert_eq!(consumer.next(&memory), Ok(Next::EpochOver));
}

#[test]
fn batches_of_ones_own_size_and_whole_ones_do_not_wait() {
    let small = Config { batch_size: Some(1), ..config() };
    let whole = Shape { is_cut: false, source_batch: 2, ..shape() };
    for (config, shape) in [(small, shape()), (Config { drop_last: true, ..small }, shape()), (own_batches(), whole)] {
        let (mut consumer, memory) = joined(config, shape, start());
        memory.head.publish(1);
        assert_eq!(take(&mut consumer, &memory).until, 1, "{config:?}");
        memory.head.publish(2);
        memory.head.end_epoch(0, 2);
        assert_eq!(take(&mut consumer, &memory).until, 2, "{config:?}");
    }
}
