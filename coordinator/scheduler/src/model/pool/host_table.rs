//! The hosts of a pool by name and by number. What is counted for each host at each decision is kept in lists by number,
//! because names are slow to compare. Numbers decide nothing.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use sluice_common::id::NodeName;

use crate::model::host::Host;

/// Number of a host in its pool. It stays until the host leaves the pool; then another host may get it.
pub(crate) type HostNumber = usize;

/// The hosts of a pool.
#[derive(Clone, Debug, Default)]
pub(crate) struct HostTable {
    numbers: BTreeMap<NodeName, HostNumber>,
    /// Hosts by number.
    hosts: Vec<Option<(NodeName, Host)>>,
    unused: Vec<HostNumber>,
}

impl HostTable {
    pub(crate) fn is_empty(&self) -> bool {
        self.numbers.is_empty()
    }

    /// Names of all hosts, in their order.
    pub(crate) fn names(&self) -> impl ExactSizeIterator<Item = &NodeName> {
        self.numbers.keys()
    }

    /// All hosts by name, in the order of the names.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&NodeName, &Host)> {
        let numbers = self.numbers.values();
        numbers.filter_map(|number| self.at(*number))
    }

    /// All hosts, in the order of their names.
    pub(crate) fn values(&self) -> impl Iterator<Item = &Host> {
        self.iter().map(|(_, host)| host)
    }

    pub(crate) fn get(&self, node: &NodeName) -> Option<&Host> {
        self.get_key_value(node).map(|(_, host)| host)
    }

    /// A host with the table's own copy of its name.
    pub(crate) fn get_key_value(&self, node: &NodeName) -> Option<(&NodeName, &Host)> {
        self.at(self.number(node)?)
    }

    pub(crate) fn number(&self, node: &NodeName) -> Option<HostNumber> {
        self.numbers.get(node).copied()
    }

    /// The host with a number, and its name.
    pub(crate) fn at(&self, number: HostNumber) -> Option<(&NodeName, &Host)> {
        let (node, host) = self.hosts.get(number)?.as_ref()?;
        Some((node, host))
    }

    /// Adds a host, or puts back one that was taken.
    pub(super) fn put(&mut self, node: &NodeName, host: Host) {
        let unused = &mut self.unused;
        let next = self.hosts.len();
        let number = self.numbers.entry(node.clone());
        let number = *number.or_insert_with(|| unused.pop().unwrap_or(next));
        if number == next {
            self.hosts.push(None);
        }
        if let Some(place) = self.hosts.get_mut(number) {
            *place = Some((node.clone(), host));
        }
    }

    /// Takes a host out; its name keeps its number until [`Self::forget`].
    pub(super) fn take(&mut self, node: &NodeName) -> Option<Host> {
        let number = self.number(node)?;
        let (_, host) = self.hosts.get_mut(number)?.take()?;
        Some(host)
    }

    /// Forgets the number of a host that was taken.
    pub(super) fn forget(&mut self, node: &NodeName) {
        self.unused.extend(self.numbers.remove(node));
    }
}

impl PartialEq for HostTable {
    /// Compares hosts by name; their numbers may differ.
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for HostTable {}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str) -> NodeName {
        NodeName::new(name).unwrap()
    }

    #[test]
    fn a_host_keeps_its_number_until_it_is_forgotten() {
        let mut table = HostTable::default();
        for name in ["b", "a", "c"] {
            table.put(&node(name), Host::default());
        }
        assert_eq!(table.number(&node("a")), Some(1));
        let host = table.take(&node("a")).unwrap();
        assert_eq!(table.get(&node("a")), None);
        table.put(&node("a"), host);
        assert_eq!(table.number(&node("a")), Some(1));
        table.take(&node("b")).unwrap();
        table.forget(&node("b"));
        table.put(&node("d"), Host::default());
        assert_eq!(table.number(&node("d")), Some(0), "that of `b`");
        let names: Vec<&NodeName> = table.iter().map(|(node, _)| node).collect();
        assert_eq!(names, [&node("a"), &node("c"), &node("d")]);
    }

    #[test]
    fn tables_with_the_same_hosts_are_equal_whatever_the_numbers() {
        let tables = [["a", "b"], ["b", "a"]].map(|names| {
            let mut table = HostTable::default();
            for name in names {
                table.put(&node(name), Host::default());
            }
            table
        });
        assert_eq!(tables[0], tables[1]);
    }
}
