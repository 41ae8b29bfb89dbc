//! Connections: whole messages, in order, late; and what each end learns when the other is gone.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

use feedline_protocol::message::{Answer, Join};
use feedline_protocol::page::Process;

use crate::pages::{CursorPage, Head};
use crate::ring::Ring;
use crate::server::Servers;

/// From a consumer.
#[derive(Debug)]
pub enum ToServer {
    Hello,
    /// For the judge: the servers of whose consumers it tells.
    Join(Join, Servers),
    Leave,
    Bye,
}

/// From the server.
#[derive(Debug)]
pub enum ToConsumer {
    Welcome(Rc<Head>, Rc<CursorPage>, Rc<Ring>),
    Ring(Rc<Ring>),
    Answer(Answer),
}

/// One direction.
#[derive(Debug)]
pub struct Queue<T> {
    messages: RefCell<VecDeque<(Duration, T)>>,
    /// Messages don't overtake each other.
    last: Cell<Duration>,
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Self { messages: RefCell::default(), last: Cell::default() }
    }
}

impl<T> Queue<T> {
    pub fn send(&self, message: T, arrives: Duration) {
        let arrives = arrives.max(self.last.get());
        self.last.set(arrives);
        self.messages.borrow_mut().push_back((arrives, message));
    }

    pub fn receive(&self, now: Duration) -> Option<T> {
        let mut messages = self.messages.borrow_mut();
        messages.front().filter(|(arrives, _)| *arrives <= now)?;
        messages.pop_front().map(|(_, message)| message)
    }

    pub fn is_empty(&self) -> bool {
        self.messages.borrow().is_empty()
    }

    /// When the next message is there.
    pub fn next(&self) -> Option<Duration> {
        self.messages.borrow().front().map(|(arrives, _)| *arrives)
    }
}

/// A connection.
#[derive(Debug, Default)]
pub struct Wire {
    pub to_server: Queue<ToServer>,
    pub to_consumer: Queue<ToConsumer>,
    pub is_server_there: Cell<bool>,
    pub is_consumer_there: Cell<bool>,
}

/// A process that can die.
#[derive(Clone, Debug)]
pub struct Pid {
    pub number: u32,
    pub is_dead: Rc<Cell<bool>>,
}

impl Process for Pid {
    fn pid(&self) -> u32 {
        self.number
    }

    fn is_dead(&self) -> bool {
        self.is_dead.get()
    }

    fn is_watched(&self) -> bool {
        true
    }
}
