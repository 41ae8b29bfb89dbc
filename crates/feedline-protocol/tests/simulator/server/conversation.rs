//! The thread of a server that talks to consumers.

use std::rc::Rc;
use std::time::Duration;

use feedline_protocol::Time;
use feedline_protocol::server::Delivery;

use super::{SLICE, ServerProcess, Stage, delay};
use crate::pages::{CursorPage, PageReader};
use crate::ring::Ring;
use crate::wire::{ToConsumer, ToServer};

impl ServerProcess {
    /// The thread that talks to consumers has one round. Says what a consumer did that none may.
    pub fn converse(&mut self, now: Duration) -> Result<(), String> {
        self.control_at = now + SLICE;
        let mut index = 0;
        while index < self.links.len() {
            if self.hear(index, now)? {
                index += 1;
            } else {
                let link = self.links.remove(index);
                self.machine.disconnect(link.id, &link.pid, link.says_bye, &*self.head, Time::new(now));
                self.producer_at = now;
            }
        }
        if self.machine.reap() {
            self.producer_at = now;
        }
        let deliveries = self.machine.deliver();
        self.send_all(deliveries, now);
        if let Some(ring) = self.ring.clone() {
            self.welcome(&ring, now);
        }
        let (deliveries, begins) = self.machine.admit(&*self.head);
        if begins {
            self.producer_at = now;
        }
        self.send_all(deliveries, now);
        Ok(())
    }

    /// Takes all messages of one consumer. False if it is gone.
    fn hear(&mut self, index: usize, now: Duration) -> Result<bool, String> {
        let time = Time::new(now);
        loop {
            let link = &mut self.links[index];
            let id = link.id;
            let Some(message) = link.wire.to_server.receive(now) else {
                return Ok(link.wire.is_consumer_there.get() || !link.wire.to_server.is_empty());
            };
            match message {
                ToServer::Hello => {
                    link.stage = Stage::Waiting;
                    self.machine.expect(id, link.pid.clone());
                }
                ToServer::Join(join, knows) => {
                    self.returns.note(&link.pid, &join, knows, now);
                    let asked = self.asked(&join);
                    let joined = self.machine.join(id, join, &*self.head, || u64::MAX, time);
                    joined.map_err(|violation| format!("a consumer was turned away: {violation:?} {join:?}"))?;
                    asked.judge_place(self.machine.log().cursor(id), self.has_passed_over)?;
                    self.producer_at = now;
                }
                ToServer::Leave => {
                    link.idle_since = now;
                    self.machine.leave(id, &*self.head, time);
                    self.producer_at = now;
                }
                ToServer::Bye => link.says_bye = true,
            }
        }
    }

    fn welcome(&mut self, ring: &Rc<Ring>, now: Duration) {
        for link in self.links.iter_mut().filter(|link| link.stage == Stage::Waiting) {
            let page = Rc::new(CursorPage::default());
            let message = ToConsumer::Welcome(Rc::clone(&self.head), Rc::clone(&page), Rc::clone(ring));
            link.wire.to_consumer.send(message, now + delay(&self.rng));
            (link.stage, link.idle_since) = (Stage::Attached, now);
            let page = PageReader::new(&page, &self.rng);
            self.machine.attach(link.id, page, link.pid.clone(), ring.shape.generation, Time::new(now));
        }
    }

    fn send_all(&mut self, deliveries: Vec<(u64, Delivery)>, now: Duration) {
        for (id, delivery) in deliveries {
            let Some(link) = self.links.iter().find(|link| link.id == id) else { continue };
            let message = match delivery {
                Delivery::Answer(answer) => ToConsumer::Answer(answer),
                Delivery::Ring => ToConsumer::Ring(Rc::clone(self.ring.as_ref().expect("there is one"))),
            };
            link.wire.to_consumer.send(message, now + delay(&self.rng));
        }
    }

    /// When a message for it arrives.
    pub fn next_message(&self) -> Option<Duration> {
        self.links.iter().filter_map(|link| link.wire.to_server.next()).min()
    }
}
