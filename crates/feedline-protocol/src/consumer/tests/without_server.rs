//! What a consumer knows without its server: whether its epoch is over.

use super::*;

#[test]
fn an_epoch_whose_end_is_known_ends() {
    let (mut consumer, memory) = joined(config(), shape(), start());
    memory.head.publish(8);
    take(&mut consumer, &memory);
    assert_eq!(consumer.without_server(&memory), WithoutServer::Reconnect, "there is a batch to take");
    take(&mut consumer, &memory);
    assert_eq!(consumer.without_server(&memory), WithoutServer::Reconnect, "there may be more");
    memory.head.end_epoch(0, 8);
    assert_eq!(consumer.without_server(&memory), WithoutServer::EpochOver);
    assert_eq!(consumer.without_server(&memory), WithoutServer::Reconnect);
    memory.head.end_epoch(1, 8);
    assert_eq!(consumer.without_server(&memory), WithoutServer::EpochOver, "the next one was empty");
    assert_eq!(consumer.epoch(), 2);
}

#[test]
fn an_epoch_that_it_had_done_with_is_passed() {
    let (mut consumer, memory) = finished_by_length();
    memory.head.publish(8);
    memory.head.end_epoch(0, 8);
    assert_eq!(consumer.without_server(&memory), WithoutServer::Passed);
    assert_eq!(consumer.without_server(&memory), WithoutServer::Reconnect);
    assert_eq!(consumer.wanted_epoch(), 1);
}

/// Nothing of it is left for a consumer that drops the last batch. All passes are here already: it would go on for ever, or past
/// the feed's end.
#[test]
fn a_replayed_epoch_that_was_not_begun_needs_a_server() {
    let shape = Shape { replays: true, epochs: Some(1), ..shape() };
    let (mut consumer, memory) = joined(Config { drop_last: true, ..config() }, shape, start());
    memory.head.publish(3);
    memory.head.end_epoch(0, 3);
    assert_eq!(consumer.without_server(&memory), WithoutServer::Reconnect);
    assert_eq!(consumer.next(&memory), Ok(Next::EpochOver), "which its server would have told it");
    assert_eq!(consumer.without_server(&memory), WithoutServer::Reconnect);
    assert_eq!(consumer.next(&memory), Ok(Next::Ended));
    let (mut consumer, memory) = joined(Config { drop_last: true, ..config() }, shape, start());
    memory.head.publish(5);
    memory.head.end_epoch(0, 5);
    take(&mut consumer, &memory);
    assert_eq!(consumer.without_server(&memory), WithoutServer::EpochOver, "it has had what there is for it");
}
