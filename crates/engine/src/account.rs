//! Accounting of the worker's cycles: a few counter readings per turn, never one per packet.

/// The component that a part of a turn is charged to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Component {
    /// Receive bursts of the ports.
    PortRx,
    /// Protocol work on received frames, and the copy of their payload into the region.
    Stack,
    /// Doorbells, requests, descriptors and events.
    Host,
    /// Timers.
    Timers,
    /// Building frames and the ports' sending, with its copy.
    Tx,
    /// Turns without work.
    Idle,
}

/// Every component, in the order of the statistics page.
pub const COMPONENTS: [(Component, &str); 6] = [
    (Component::PortRx, "cycles_port_rx"),
    (Component::Stack, "cycles_stack"),
    (Component::Host, "cycles_host"),
    (Component::Timers, "cycles_timers"),
    (Component::Tx, "cycles_tx"),
    (Component::Idle, "cycles_idle"),
];

/// Cycles by component. A turn without work is idle as a whole.
#[derive(Clone, Debug, Default)]
pub struct Account {
    totals: [u64; COMPONENTS.len()],
    turn: [u64; COMPONENTS.len()],
    mark: u64,
}

impl Account {
    /// A turn begins.
    pub fn begin(&mut self, cycles: u64) {
        self.turn = [0; COMPONENTS.len()];
        self.mark = cycles;
    }

    /// Charges the cycles since the last reading to `component`.
    pub fn charge(&mut self, component: Component, cycles: u64) {
        if let Some(slot) = self.turn.get_mut(component as usize) {
            *slot = slot.wrapping_add(cycles.wrapping_sub(self.mark));
        }
        self.mark = cycles;
    }

    /// The turn ends; a turn without work counts as idle.
    pub fn end(&mut self, worked: bool) {
        if worked {
            for (total, turn) in self.totals.iter_mut().zip(self.turn) {
                *total = total.wrapping_add(turn);
            }
        } else if let Some(idle) = self.totals.get_mut(Component::Idle as usize) {
            *idle = idle.wrapping_add(self.turn.iter().sum());
        }
    }

    /// Totals in the order of [`COMPONENTS`].
    pub fn totals(&self) -> &[u64; COMPONENTS.len()] {
        &self.totals
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_without_work_is_idle_as_a_whole() {
        let mut account = Account::default();
        account.begin(100);
        account.charge(Component::PortRx, 110);
        account.charge(Component::Host, 130);
        account.end(false);
        account.begin(200);
        account.charge(Component::PortRx, 205);
        account.end(true);
        assert_eq!(account.totals(), &[5, 0, 0, 0, 0, 30]);
    }
}
