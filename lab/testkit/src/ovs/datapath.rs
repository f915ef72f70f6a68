//! Which datapath a sandbox uses: the one place that decides it.

/// Environment variable that chooses the datapath of all sandboxes: `system` for the kernel's, where its module is loaded.
pub const VARIABLE: &str = "OVS_DATAPATH";

/// What forwards the packets of a sandbox.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Datapath {
    /// The userspace datapath, with ports whose packets are read from and written to files.
    Dummy,
    /// The userspace datapath, with ports that are links of a namespace.
    Userspace,
    /// The kernel module. Its ports are links of a namespace, where `ovs-system` is one per namespace.
    Kernel,
}

impl Datapath {
    /// `datapath_type` of a bridge in OVSDB.
    pub(super) fn bridge_type(self) -> &'static str {
        match self {
            Self::Dummy => "dummy",
            Self::Userspace => "netdev",
            Self::Kernel => "system",
        }
    }

    /// Options of ovs-vswitchd that keep it from datapaths of other kinds.
    pub(super) fn options(self) -> &'static [&'static str] {
        match self {
            Self::Dummy => &["--disable-system", "--enable-dummy=override", "--disable-system-route"],
            Self::Userspace => &["--disable-system"],
            Self::Kernel => &[],
        }
    }
}

/// Whether tests run on the kernel's datapath: `make test-kernel` sets [`VARIABLE`] in its virtual machine.
pub fn in_kernel() -> bool {
    std::env::var(VARIABLE).is_ok_and(|value| value == "system")
}
