//! Asking a real server how it stands, more often than one listens.

mod support;

use std::time::Duration;

use feedline_core::control_client::ControlClient;
use feedline_core::server::{Options, Server};
use support::folder;

const TIMEOUT: Duration = Duration::from_secs(20);
/// Many ticks of the clock that a server counts by.
const PAUSE: Duration = Duration::from_millis(200);

#[test]
fn the_answer_is_to_the_last_question() {
    let folder = folder();
    let server = Server::bind("visited", Options::default()).unwrap();
    let mut client = ControlClient::connect("visited").unwrap();
    let before = client.stats(TIMEOUT).unwrap().uptime_secs;
    // As after looks at a server that was stopped meanwhile: questions are out, and nobody heard the answers.
    client.ask_stats().unwrap();
    std::thread::sleep(PAUSE);
    client.ask_stats().unwrap();
    let second = client.receive_stats(TIMEOUT).unwrap().uptime_secs;
    assert!(second >= before + 0.1, "{second} after {before}");
    // However often one asks, all answers are heard, and none is left for the next question.
    for _ in 0..20 {
        client.ask_stats().unwrap();
    }
    let third = client.receive_stats(TIMEOUT).unwrap().uptime_secs;
    std::thread::sleep(PAUSE);
    let last = client.stats(TIMEOUT).unwrap().uptime_secs;
    assert!(last >= third + 0.1, "{last} after {third}");
    drop((client, server));
    std::fs::remove_dir_all(folder).unwrap();
}
