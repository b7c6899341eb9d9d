//! Which endpoint has a port.

use serde::{Deserialize, Serialize};

use super::api::EndpointId;

/// Ports of a page.
const PAGE: usize = 256;

/// A page for each upper half of a number, made when it is first used: a look takes two steps
/// whichever ports there are.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Ports {
    pages: Vec<Vec<Option<EndpointId>>>,
}

fn place(port: u16) -> (usize, usize) {
    (usize::from(port) / PAGE, usize::from(port) % PAGE)
}

impl Ports {
    pub fn get(&self, port: u16) -> Option<EndpointId> {
        let (page, at) = place(port);
        self.pages.get(page).and_then(|page| page.get(at)).copied().flatten()
    }

    pub fn insert(&mut self, port: u16, endpoint: EndpointId) {
        let (page, at) = place(port);
        if self.pages.len() <= page {
            self.pages.resize_with(page + 1, Vec::new);
        }
        let page = &mut self.pages[page];
        page.resize(PAGE, None);
        page[at] = Some(endpoint);
    }

    pub fn remove(&mut self, port: u16) {
        let (page, at) = place(port);
        if let Some(entry) = self.pages.get_mut(page).and_then(|page| page.get_mut(at)) {
            *entry = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_port_has_a_place_of_its_own() {
        let mut ports = Ports::default();
        let id = |port: u16| EndpointId { index: port.into(), generation: 1 };
        for port in 0..=u16::MAX {
            assert_eq!(ports.get(port), None);
            ports.insert(port, id(port));
        }
        for port in 0..=u16::MAX {
            assert_eq!(ports.get(port), Some(id(port)));
            ports.remove(port);
            assert_eq!(ports.get(port), None);
        }
    }
}
