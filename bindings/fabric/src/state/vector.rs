//! An address vector: hosts' addresses by number.

use std::collections::HashMap;
use std::net::SocketAddr;

use slab::Slab;

/// Addresses by number. Maps and tables are the same: both use indices of a table.
#[derive(Debug, Default)]
pub struct Vector {
    addresses: Slab<SocketAddr>,
    numbers: HashMap<SocketAddr, u64>,
}

impl Vector {
    /// Adds an address and returns its number. An address added twice has two numbers.
    pub fn insert(&mut self, address: SocketAddr) -> u64 {
        let number = self.addresses.insert(address) as u64;
        self.numbers.entry(address).or_insert(number);
        number
    }

    /// Removes one by its number; `None` if there is none.
    pub fn remove(&mut self, number: u64) -> Option<SocketAddr> {
        let address = self.addresses.try_remove(usize::try_from(number).ok()?)?;
        if self.numbers.get(&address) == Some(&number) {
            self.numbers.remove(&address);
            let other = self.addresses.iter().find(|(_, other)| **other == address);
            if let Some((other, _)) = other {
                self.numbers.insert(address, other as u64);
            }
        }
        Some(address)
    }

    /// The address of a number.
    pub fn address(&self, number: u64) -> Option<SocketAddr> {
        self.addresses.get(usize::try_from(number).ok()?).copied()
    }

    /// The number of an address.
    pub fn number(&self, address: SocketAddr) -> Option<u64> {
        self.numbers.get(&address).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_keeps_a_number_while_one_is_left() {
        let mut vector = Vector::default();
        let address: SocketAddr = "10.0.0.1:5".parse().expect("an address");
        let (first, second) = (vector.insert(address), vector.insert(address));
        assert_ne!(first, second);
        assert_eq!(vector.number(address), Some(first));
        assert_eq!(vector.remove(first), Some(address));
        assert_eq!(vector.number(address), Some(second));
        assert_eq!(vector.remove(first), None);
        assert_eq!(vector.remove(second), Some(address));
        assert_eq!(vector.number(address), None);
        assert_eq!(vector.address(second), None);
    }
}
