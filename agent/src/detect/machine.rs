//! Identifies this machine, to distinguish it from another with a copy of its disk: by its machine id and the
//! permanent addresses of its network hardware.

use std::fs;
use std::path::Path;

use sluice_common::inventory::{Inventory, MachineIdentity};
use sluice_common::limit::MAX_ADDRESSES;
use sluice_transport::digest_of;

/// The kernel's type of a permanent hardware address.
const PERMANENT: &str = "0";

/// Fills in the identity. `root` is `/`, or a test's directory.
pub(crate) fn detect(root: &Path, inventory: &mut Inventory) {
    let id = text(&root.join("etc/machine-id"));
    inventory.machine = MachineIdentity {
        id: id.map(|id| mark(&id)).unwrap_or_default(),
        addresses: addresses(root)
            .iter()
            .map(|address| mark(address))
            .take(MAX_ADDRESSES)
            .collect(),
    };
}

/// Ids and addresses leave the host only as digests.
fn mark(of: &str) -> String {
    digest_of(format!("sluice machine\n{of}").as_bytes()).to_string()
}

fn addresses(root: &Path) -> Vec<String> {
    let found = fs::read_dir(root.join("sys/class/net"));
    let interfaces = found.into_iter().flatten().flatten().map(|it| it.path());
    interfaces.filter_map(|path| built_in(&path)).collect()
}

/// Permanent address of a hardware interface: not of bridges and tunnels, which have no device, nor of
/// virtual functions, whose addresses change at each boot. A bonded interface shows another address.
fn built_in(interface: &Path) -> Option<String> {
    let device = interface.join("device");
    if !device.exists() || device.join("physfn").exists() {
        return None;
    }
    text(&interface.join("bonding_slave/perm_hwaddr")).or_else(|| {
        let kind = text(&interface.join("addr_assign_type"));
        let address = text(&interface.join("address"));
        address.filter(|_| kind.as_deref() == Some(PERMANENT))
    })
}

fn text(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    struct FakeMachine(tempfile::TempDir);

    impl FakeMachine {
        fn new(id: &str) -> Self {
            let dir = tempfile::tempdir().unwrap();
            fs::create_dir_all(dir.path().join("etc")).unwrap();
            fs::write(dir.path().join("etc/machine-id"), format!("{id}\n")).unwrap();
            Self(dir)
        }

        fn with(self, name: &str, files: &[(&str, &str)]) -> Self {
            let interface = self.0.path().join("sys/class/net").join(name);
            for (file, text) in files {
                let path = interface.join(file);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, format!("{text}\n")).unwrap();
            }
            self
        }

        fn card(self, name: &str, address: &str) -> Self {
            let files = [
                ("address", address),
                ("addr_assign_type", "0"),
                ("device/vendor", "x"),
            ];
            self.with(name, &files)
        }

        fn machine(&self) -> MachineIdentity {
            let mut inventory = Inventory::default();
            detect(self.0.path(), &mut inventory);
            inventory.machine
        }
    }

    #[test]
    fn a_copy_of_the_disk_in_another_machine_is_another_and_a_reboot_is_none() {
        let host = |id: &str, cards: &[(&str, &str)]| {
            let cards = cards.iter();
            cards
                .fold(FakeMachine::new(id), |host, (name, address)| {
                    host.card(name, address)
                })
                .machine()
        };
        let first = host("id", &[("eth0", "aa"), ("eth1", "bb")]);
        let same = [
            (
                "names are given at each boot",
                host("id", &[("eth0", "bb"), ("eth1", "aa")]),
            ),
            ("one card is not found yet", host("id", &[("eth0", "bb")])),
            ("no card is found yet", host("id", &[])),
            (
                "one card was replaced",
                host("id", &[("eth0", "aa"), ("eth1", "ee")]),
            ),
            (
                "it was installed anew",
                host("id2", &[("eth0", "aa"), ("eth1", "bb")]),
            ),
        ];
        for (why, same) in same {
            assert!(!same.differs_from(&first), "{why}");
            assert!(!first.differs_from(&same), "{why}");
        }
        assert!(host("id", &[("eth0", "cc")]).differs_from(&first));
        assert!(host("id2", &[]).differs_from(&host("id", &[])));
        let told = format!("{first:?}");
        assert!(
            !told.contains("\"id\"") && !told.contains("\"aa\""),
            "{told}"
        );
    }

    #[test]
    fn what_software_makes_up_does_not_count() {
        let plain = || FakeMachine::new("id").card("eth0", "aa");
        let bridge = plain().with("br0", &[("address", "x1"), ("addr_assign_type", "0")]);
        let random = plain().with(
            "usb0",
            &[
                ("address", "x2"),
                ("addr_assign_type", "1"),
                ("device/vendor", "x"),
            ],
        );
        let function = plain().with(
            "vf0",
            &[
                ("address", "x3"),
                ("addr_assign_type", "0"),
                ("device/physfn/vendor", "x"),
            ],
        );
        let bonded = FakeMachine::new("id").with(
            "eth0",
            &[
                ("address", "bond"),
                ("addr_assign_type", "2"),
                ("device/vendor", "x"),
                ("bonding_slave/perm_hwaddr", "aa"),
            ],
        );
        for other in [bridge, random, function, bonded] {
            assert_eq!(other.machine(), plain().machine());
        }
    }

    #[test]
    fn a_machine_of_which_nothing_is_known_is_no_other() {
        let empty = FakeMachine(tempfile::tempdir().unwrap()).machine();
        assert_eq!(empty, MachineIdentity::default());
        let known = FakeMachine::new("id").card("eth0", "aa").machine();
        assert!(!empty.differs_from(&known) && !known.differs_from(&empty));
    }
}
