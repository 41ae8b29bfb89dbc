use super::*;
use std::sync::atomic::AtomicU64 as Count;

fn task(number: u64) -> [u64; TASK_WORDS] {
    std::array::from_fn(|word| number + word as u64)
}

#[test]
fn tasks_are_taken_in_order_and_once() {
    let board = Board::create(2, 4).unwrap();
    let tickets: Vec<u64> = (0..4).map(|number| board.post(task(number * 100)).unwrap()).collect();
    assert_eq!(board.post(task(9)), None, "it is full");
    assert_eq!(board.take(1), Some((tickets[0], task(0))));
    assert_eq!(board.take(0), Some((tickets[1], task(100))));
    assert_eq!((board.taken_by(tickets[0]), board.taken_by(tickets[2])), (Some(1), None));
    assert_eq!(board.finished(tickets[0]), None);
    board.finish(1, tickets[0], [7, 8, 9, 10], false);
    assert_eq!(board.finished(tickets[0]), Some(Finished { worker: 1, outcome: [7, 8, 9, 10] }));
    board.clear(tickets[0]);
    assert_eq!(board.post(task(5)), Some(4));
}

#[test]
fn what_a_dead_worker_had_is_taken_first() {
    let board = Board::create(2, 8).unwrap();
    for number in 0..4 {
        board.post(task(number)).unwrap();
    }
    assert_eq!(board.take(0).unwrap().0, 0);
    assert_eq!(board.take(0).unwrap().0, 1);
    assert_eq!(board.at_work(0).unwrap().ticket, 1);
    board.forget_worker(0);
    board.post_again(0);
    assert_eq!(board.at_work(0), None);
    assert_eq!(board.take(1).unwrap().0, 0);
    assert_eq!(board.take(1).unwrap().0, 2, "ticket 1 is still taken");
}

#[test]
fn a_task_that_was_begun_can_not_be_withdrawn() {
    let board = Board::create(1, 4).unwrap();
    let (first, second) = (board.post(task(0)).unwrap(), board.post(task(1)).unwrap());
    board.take(0).unwrap();
    assert!(!board.withdraw(first) && board.withdraw(second));
    assert_eq!(board.take(0), None);
}

#[test]
fn two_ends_are_one_board() {
    let board = Board::create(1, 2).unwrap();
    let other = Board::open(board.fd().try_clone_to_owned().unwrap(), 1, 2).unwrap();
    board.post(task(3)).unwrap();
    assert_eq!(other.take(0), Some((0, task(3))));
    assert!(Board::open(board.fd().try_clone_to_owned().unwrap(), 1, 20_000).is_err());
}

/// Every task is done once, whatever the threads do, and every sleep ends by a wake-up: none lasts its full time.
#[test]
fn threads_do_all_tasks_once() {
    const TASKS: u64 = 20_000;
    let board = Board::create(3, 16).unwrap();
    let done: Vec<Count> = (0..TASKS).map(|_| Count::new(0)).collect();
    let long = Duration::from_secs(3600);
    std::thread::scope(|scope| {
        for worker in 0..3 {
            let (board, done) = (&board, &done);
            scope.spawn(move || {
                loop {
                    let Some((ticket, task)) = board.take(worker) else {
                        if board.wait_for_task(long) {
                            return;
                        }
                        continue;
                    };
                    done[task[0] as usize].fetch_add(1, Ordering::Relaxed);
                    board.finish(worker, ticket, [task[0], 0, 0, 0], false);
                }
            });
        }
        let (mut posted, mut seen) = (0, 0);
        while seen < TASKS {
            let before = board.done();
            while posted < TASKS && board.post(std::array::from_fn(|_| posted)).is_some() {
                posted += 1;
                board.announce(1);
            }
            match board.finished(seen) {
                Some(finished) => {
                    assert_eq!(finished.outcome[0], seen);
                    board.clear(seen);
                    seen += 1;
                }
                None => board.wait(before, 1, long),
            }
        }
        board.close();
    });
    assert!(done.iter().all(|count| count.load(Ordering::Relaxed) == 1));
}

#[test]
fn a_question_is_answered() {
    let board = Board::create(1, 2).unwrap();
    std::thread::scope(|scope| {
        let asking = scope.spawn(|| board.ask(0, 2, 77, || true));
        while board.question(0).is_none() {
            board.wait(board.done(), 1, Duration::from_secs(3600));
        }
        assert_eq!(board.question(0), Some((2, 77)));
        board.answer(0);
        assert!(asking.join().unwrap());
    });
}

#[test]
fn a_worker_that_retires_is_told_so_and_counts_until_it_is_dead() {
    let board = Board::create(2, 2).unwrap();
    assert_eq!(board.workers_up(), 0);
    assert!(!board.is_retired(0) && !board.is_retired(1));
    assert_eq!(board.workers_up(), 2);
    board.retire(1, true);
    assert!(board.is_retired(1) && !board.is_retired(0));
    assert_eq!(board.workers_up(), 2);
    board.forget_worker(1);
    assert_eq!(board.workers_up(), 1);
    board.retire(1, false);
    assert!(!board.is_retired(1));
}
