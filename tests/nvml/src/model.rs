//! Data of GPU models, so that host files stay short: NVIDIA's published figures, and for the rest what such a card was
//! seen to answer.

use nvml_wrapper_sys::bindings as nvml;

/// A model of GPU.
pub(crate) struct Model {
    /// NVML's name of it.
    pub(crate) name: &'static str,
    /// 0 if unknown.
    pub(crate) memory_mib: u32,
    pub(crate) reserved_mib: u32,
    pub(crate) bar1_mib: u64,
    pub(crate) bus_width: u32,
    pub(crate) architecture: u32,
    pub(crate) compute_capability: [i32; 2],
    pub(crate) cores: u32,
    pub(crate) part_number: &'static str,
    /// Device and vendor in one number, as in PCI; likewise the subsystem.
    pub(crate) pci_device: u32,
    pub(crate) pci_subsystem: u32,
    /// Buses of such a card on the usual board, by index.
    pub(crate) buses: [u32; 8],
    pub(crate) pcie_generation: u32,
    pub(crate) idle_w: u16,
    pub(crate) limit_w: u16,
    pub(crate) clocks: Clocks,
    /// `None` if it has no links.
    pub(crate) nvlink: Option<NvLink>,
    /// `None` if it has no MIG.
    pub(crate) mig: Option<Mig>,
}

/// Clocks in MHz.
pub(crate) struct Clocks {
    pub(crate) idle: u32,
    pub(crate) graphics_max: u32,
    pub(crate) memory: u32,
    pub(crate) video_max: u32,
}

/// NVLink of such a card.
pub(crate) struct NvLink {
    pub(crate) links: u32,
    pub(crate) version: u32,
    /// NVSwitches on the usual board.
    pub(crate) switches: u32,
    /// PCI id of an NVSwitch of its generation.
    pub(crate) switch_device: u32,
}

/// MIG of such a card.
pub(crate) struct Mig {
    pub(crate) max_devices: u32,
    pub(crate) multiprocessors_per_slice: u32,
}

const AMPERE_LINK: NvLink = NvLink {
    links: 12,
    version: nvml::nvmlNvlinkVersion_enum_NVML_NVLINK_VERSION_3_0,
    switches: 6,
    switch_device: 0x1af1_10de,
};

const HOPPER_LINK: NvLink = NvLink {
    links: 18,
    version: nvml::nvmlNvlinkVersion_enum_NVML_NVLINK_VERSION_4_0,
    switches: 4,
    switch_device: 0x22a3_10de,
};

const A100_MIG: Mig = Mig {
    max_devices: 7,
    multiprocessors_per_slice: 14,
};

const H100_MIG: Mig = Mig {
    max_devices: 7,
    multiprocessors_per_slice: 16,
};

const DGX_A100_BUSES: [u32; 8] = [0x07, 0x0f, 0x47, 0x4e, 0x87, 0x90, 0xb7, 0xbd];
const DGX_H100_BUSES: [u32; 8] = [0x1b, 0x43, 0x52, 0x61, 0x9d, 0xc3, 0xd1, 0xdf];
const OTHER_BUSES: [u32; 8] = [0x16, 0x27, 0x38, 0x5a, 0x98, 0xa9, 0xba, 0xdc];

const MODELS: &[Model] = &[
    Model {
        name: "NVIDIA A100-SXM4-80GB",
        memory_mib: 81_920,
        reserved_mib: 571,
        bar1_mib: 131_072,
        bus_width: 5120,
        architecture: nvml::NVML_DEVICE_ARCH_AMPERE,
        compute_capability: [8, 0],
        cores: 6912,
        part_number: "692-2G506-0212-002",
        pci_device: 0x20b2_10de,
        pci_subsystem: 0x147f_10de,
        buses: DGX_A100_BUSES,
        pcie_generation: 4,
        idle_w: 61,
        limit_w: 400,
        clocks: Clocks {
            idle: 210,
            graphics_max: 1410,
            memory: 1593,
            video_max: 1290,
        },
        nvlink: Some(AMPERE_LINK),
        mig: Some(A100_MIG),
    },
    Model {
        name: "NVIDIA A100 80GB PCIe",
        memory_mib: 81_920,
        reserved_mib: 571,
        bar1_mib: 131_072,
        bus_width: 5120,
        architecture: nvml::NVML_DEVICE_ARCH_AMPERE,
        compute_capability: [8, 0],
        cores: 6912,
        part_number: "900-21001-0020-100",
        pci_device: 0x20b5_10de,
        pci_subsystem: 0x1533_10de,
        buses: OTHER_BUSES,
        pcie_generation: 4,
        idle_w: 44,
        limit_w: 300,
        clocks: Clocks {
            idle: 210,
            graphics_max: 1410,
            memory: 1512,
            video_max: 1290,
        },
        // Bridges only, without switches.
        nvlink: Some(NvLink {
            switches: 0,
            ..AMPERE_LINK
        }),
        mig: Some(A100_MIG),
    },
    Model {
        name: "NVIDIA H100 80GB HBM3",
        memory_mib: 81_559,
        reserved_mib: 551,
        bar1_mib: 131_072,
        bus_width: 5120,
        architecture: nvml::NVML_DEVICE_ARCH_HOPPER,
        compute_capability: [9, 0],
        cores: 16_896,
        part_number: "692-2G520-0200-000",
        pci_device: 0x2330_10de,
        pci_subsystem: 0x16c1_10de,
        buses: DGX_H100_BUSES,
        pcie_generation: 5,
        idle_w: 70,
        limit_w: 700,
        clocks: Clocks {
            idle: 345,
            graphics_max: 1980,
            memory: 2619,
            video_max: 1545,
        },
        nvlink: Some(HOPPER_LINK),
        mig: Some(H100_MIG),
    },
    Model {
        name: "NVIDIA H200",
        memory_mib: 143_771,
        reserved_mib: 617,
        bar1_mib: 262_144,
        bus_width: 6144,
        architecture: nvml::NVML_DEVICE_ARCH_HOPPER,
        compute_capability: [9, 0],
        cores: 16_896,
        part_number: "692-2G520-0280-000",
        pci_device: 0x2335_10de,
        pci_subsystem: 0x18be_10de,
        buses: DGX_H100_BUSES,
        pcie_generation: 5,
        idle_w: 76,
        limit_w: 700,
        clocks: Clocks {
            idle: 345,
            graphics_max: 1980,
            memory: 3201,
            video_max: 1545,
        },
        nvlink: Some(HOPPER_LINK),
        mig: Some(H100_MIG),
    },
    Model {
        name: "NVIDIA L40S",
        memory_mib: 46_068,
        reserved_mib: 600,
        bar1_mib: 65_536,
        bus_width: 384,
        architecture: nvml::NVML_DEVICE_ARCH_ADA,
        compute_capability: [8, 9],
        cores: 18_176,
        part_number: "900-2G133-0080-000",
        pci_device: 0x26b9_10de,
        pci_subsystem: 0x1851_10de,
        buses: OTHER_BUSES,
        pcie_generation: 4,
        idle_w: 36,
        limit_w: 350,
        clocks: Clocks {
            idle: 210,
            graphics_max: 2520,
            memory: 9001,
            video_max: 1965,
        },
        nvlink: None,
        mig: None,
    },
];

/// Data of an unknown card, besides its name and memory.
const UNKNOWN: Model = Model {
    name: "",
    memory_mib: 0,
    reserved_mib: 600,
    bar1_mib: 65_536,
    bus_width: 384,
    architecture: nvml::NVML_DEVICE_ARCH_UNKNOWN,
    compute_capability: [12, 0],
    cores: 16_384,
    part_number: "900-00000-0000-000",
    pci_device: 0x2fff_10de,
    pci_subsystem: 0x0000_10de,
    buses: OTHER_BUSES,
    pcie_generation: 5,
    idle_w: 40,
    limit_w: 600,
    clocks: Clocks {
        idle: 210,
        graphics_max: 2400,
        memory: 10_000,
        video_max: 2000,
    },
    nvlink: None,
    mig: None,
};

impl Model {
    /// Returns the model with this name, or the data of an unknown one.
    pub(crate) fn named(name: &str) -> &'static Self {
        MODELS
            .iter()
            .find(|model| model.name == name)
            .unwrap_or(const { &UNKNOWN })
    }
}
