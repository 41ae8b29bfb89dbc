//! Whether the server knows of everybody who takes samples from memory that it still writes to.

use crate::consumer::{ConsumerProcess, Event};
use crate::server::ServerProcess;

/// Whoever takes a batch without copying it has a cursor that holds it.
pub fn is_held(server: &ServerProcess, consumer: &ConsumerProcess, event: &Event) -> Result<(), String> {
    let Event::Batch { ring: Some((ring, first)), .. } = event else { return Ok(()) };
    if !server.writes_to(ring) {
        return Ok(());
    }
    match server.cursor_of(&consumer.pid) {
        Some((_, Some(released))) if released <= *first => Ok(()),
        cursor => Err(format!("it took {first} and more, and the server knows its cursor as {cursor:?}")),
    }
}
