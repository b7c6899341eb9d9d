//! Maps written in the order of their keys: that in the map depends on its history, and an export must not.

use std::collections::BTreeMap;

use hashbrown::HashMap;
use serde::{Serialize, Serializer};

/// For `#[serde(serialize_with)]`.
pub fn write<K, V, H, S>(map: &HashMap<K, V, H>, serializer: S) -> Result<S::Ok, S::Error>
where
    K: Ord + Serialize,
    V: Serialize,
    S: Serializer,
{
    serializer.collect_map(map.iter().collect::<BTreeMap<_, _>>())
}

#[cfg(test)]
mod tests {
    use std::hash::BuildHasherDefault;

    use serde::Deserialize;
    use siphasher::sip::SipHasher13;

    use super::*;

    #[derive(Serialize, Deserialize)]
    struct Table {
        #[serde(serialize_with = "write")]
        map: HashMap<u32, u32, BuildHasherDefault<SipHasher13>>,
    }

    /// The order in which two listeners had been made decided how they were exported.
    #[test]
    fn an_export_does_not_hang_on_the_order_in_which_things_were_entered() {
        let forth = Table { map: (0..500).map(|key| (key, key)).collect() };
        let back = Table { map: (0..500).rev().map(|key| (key, key)).collect() };
        let bytes = [forth, back].map(|table| postcard::to_stdvec(&table).unwrap());
        assert_eq!(bytes[0], bytes[1]);
        let again: Table = postcard::from_bytes(&bytes[0]).unwrap();
        assert_eq!(postcard::to_stdvec(&again).unwrap(), bytes[0]);
    }
}
