//! More connections than a server can have. Alone in its process, whose limit it lowers.

mod support;

use std::os::unix::net::UnixStream;
use std::time::Duration;

use feedline_core::consumer::Consumer;
use feedline_core::server::{Options, RingSize, Server};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use support::{Counter, config, folder, read_all};

/// With so few descriptors, 16 consumers are the most, and 24 connections; the test holds the other ends too.
fn few_descriptors() {
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: Some(128), maximum }).unwrap();
}

#[test]
fn a_crowd_takes_no_more_than_its_share_and_goes_away_again() {
    few_descriptors();
    let folder = folder();
    let server =
        Server::bind("crowd", Options { epochs: Some(1), ring: Some(RingSize::Samples(40)), ..Options::default() });
    let server = server.unwrap();
    std::thread::scope(|scope| {
        let serving = scope.spawn(|| server.run_batches(&mut Counter::default(), &mut || Ok(())));
        let mut early = Consumer::attach(config("crowd", 5), &mut || Ok(())).unwrap();
        let descriptors = || std::fs::read_dir("/proc/self/fd").unwrap().count();
        let before = descriptors();
        let crowd: Vec<UnixStream> =
            (0..32).filter_map(|_| UnixStream::connect(folder.join("crowd.sock")).ok()).collect();
        // 24 at two descriptors each, and our ends.
        std::thread::sleep(Duration::from_millis(300));
        assert!(descriptors() <= before + crowd.len() + 2 * 24, "{before} before, {} now", descriptors());
        // A consumer that comes now waits until the silent peers are dropped; one that came before them goes on.
        let late = Consumer::attach(config("crowd", 7), &mut || Ok(()));
        late.expect("the silent were dropped");
        read_all(&mut early);
        drop((early, crowd));
        serving.join().unwrap().unwrap();
    });
}
