//! What programs do at random, and what happens to hosts.

use stack::message::{Address, Host, PayloadPlace, ReceiveRequest, Selector, SendRequest};

use super::book::{self, Outgoing, Wanted};
use super::{HANDLES, HOSTS, Node, PORTS, World, heap};

impl World {
    /// A program does something, or something happens to a host.
    pub(super) fn act(&mut self) {
        let at = self.random.below(HOSTS as u64) as usize;
        let program = self.random.below(u64::from(PORTS)) as usize;
        match self.random.below(100) {
            0 if self.unrest => self.restart(at),
            1..=2 if self.unrest => self.reopen(at, program),
            3..=8 => self.cancel(at, program),
            9..=50 => self.post(at, program),
            _ => self.send(at, program),
        }
    }

    fn address(&mut self, at: usize) -> Address {
        let to = self.random.below(HOSTS as u64) as usize;
        let host = if to == at { Host::LOCAL } else { Self::host(to) };
        Address { host, port: self.random.below(u64::from(PORTS)) as u16 + 1 }
    }

    fn send(&mut self, at: usize, program: usize) {
        let to = self.address(at);
        let to_node = HANDLES.iter().position(|host| *host == to.host).unwrap_or(at);
        let to_program = usize::from(to.port) - 1;
        let to_life = self.nodes[to_node].programs[to_program].life;
        let meets = self.keys[program] == self.keys[to_program];
        let length = (self.random.scale_free(100_000) - 1) as u32;
        let tag = self.random.below(3);
        let delivery = self.random.chance(1, 8);
        self.cookie += 1;
        let cookie = self.cookie;
        let node = &mut self.nodes[at];
        node.heap.put(PayloadPlace::Send(cookie), book::pattern(cookie, length));
        let request = SendRequest {
            to,
            tag: Some(tag),
            immediate: Some(cookie as u32),
            length,
            available: length,
            delivery,
            cookie,
        };
        let it = &mut node.programs[program];
        let (from, to) = ((at, it.life), (to_node, to_life));
        self.book.send(cookie, Outgoing { from, to, length, meets });
        match node.core.send(self.now, it.id, request, &mut node.heap) {
            Ok(id) => it.sends.push(id),
            Err(error) => unreachable!("500 operations are allowed: {error}"),
        }
    }

    fn post(&mut self, at: usize, program: usize) {
        let source = self.random.chance(1, 3).then(|| self.address(at));
        let tag = Some(self.random.below(3));
        let ignore = self.random.pick(&[0, 0, 0, 1, u64::MAX]);
        let capacity = self.random.scale_free(150_000) as u32;
        let selector = Selector { source, tag, ignore };
        self.receive(at, program, Wanted { selector, capacity, taker: false });
    }

    pub(super) fn receive(&mut self, at: usize, program: usize, wanted: Wanted) {
        let Wanted { selector, capacity, .. } = wanted;
        self.cookie += 1;
        let cookie = self.cookie;
        let node = &mut self.nodes[at];
        let place = PayloadPlace::Receive(cookie);
        node.heap.put(place, vec![heap::GUARD; capacity as usize]);
        let it = &mut node.programs[program];
        self.book.receive(cookie, (at, it.life), wanted);
        let request = ReceiveRequest { selector, capacity, window: capacity, cookie };
        match node.core.receive(self.now, it.id, request, &mut node.heap) {
            Ok(id) => it.receives.push(id),
            Err(error) => unreachable!("1,000 operations are allowed: {error}"),
        }
    }

    fn cancel(&mut self, at: usize, program: usize) {
        let node = &mut self.nodes[at];
        let it = &mut node.programs[program];
        if self.random.chance(1, 2) {
            let last = it.receives.len() as u64;
            if last > 0 {
                let id = it.receives.swap_remove(self.random.below(last) as usize);
                node.core.cancel_receive(id);
            }
        } else if let Some(id) = it.sends.pop() {
            node.core.cancel_send(id);
        }
    }

    /// An endpoint closes, at once or when its sends have ended, and another one has its port.
    fn reopen(&mut self, at: usize, program: usize) {
        let id = self.nodes[at].programs[program].id;
        self.closing.push((at, id));
        self.book.close(self.nodes[at].programs[program].life);
        let node = &mut self.nodes[at];
        if self.random.chance(1, 2) {
            node.core.abort(self.now, id, &mut node.heap);
        } else {
            node.core.close(self.now, id, &mut node.heap);
        }
        let mut node = std::mem::replace(&mut self.nodes[at], Node::nothing());
        node.programs[program] = self.open(&mut node, program as u16);
        self.nodes[at] = node;
    }

    /// A host loses all that it had.
    fn restart(&mut self, at: usize) {
        self.book.forget(at);
        self.closing.retain(|it| it.0 != at);
        self.nodes[at] = self.start(at);
    }
}
