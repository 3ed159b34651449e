//! How the simulated runtime behaves: latency, faults, CNI, disk. All of it can change at run time.

use std::collections::BTreeMap;
use std::time::Duration;

use tonic::{Code, Status};

use super::record::Rpc;

/// A failure or delay of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct Fault {
    pub(super) delay: Duration,
    pub(super) effect: Effect,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    Proceed,
    Hang,
    Pretend,
    Garble(Vec<u8>),
    Fail {
        code: Code,
        message: String,
        left: Option<u32>,
    },
}

impl Fault {
    fn new(effect: Effect) -> Self {
        Self {
            delay: Duration::ZERO,
            effect,
        }
    }

    /// The call succeeds after this delay.
    pub fn slow(delay: Duration) -> Self {
        Self::new(Effect::Proceed).after(delay)
    }

    /// The call hangs until the fault is cleared, the caller gives up or the runtime stops.
    pub fn hang() -> Self {
        Self::new(Effect::Hang)
    }

    /// The removal ([`Handle::set_removal_fault`]) or `StopContainer` answers as if it had succeeded, and does nothing.
    ///
    /// [`Handle::set_removal_fault`]: crate::Handle::set_removal_fault
    pub fn pretend() -> Self {
        Self::new(Effect::Pretend)
    }

    /// The call succeeds, but each message of its answer is replaced by these bytes.
    pub fn garbage(bytes: impl Into<Vec<u8>>) -> Self {
        Self::new(Effect::Garble(bytes.into()))
    }

    /// The call fails.
    pub fn fail(code: Code, message: impl Into<String>) -> Self {
        Self::new(Effect::Fail {
            code,
            message: message.into(),
            left: None,
        })
    }

    /// The failure happens this many times; then the fault is gone.
    pub fn times(mut self, times: u32) -> Self {
        if let Effect::Fail { left, .. } = &mut self.effect {
            *left = Some(times);
        }
        self
    }

    /// The failure takes this long.
    pub fn after(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }
}

/// How the network plugin's DEL ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Del {
    Works,
    Fails,
    PluginMissing,
    NotInitialized,
    Hangs,
}

/// What the network plugin does when a sandbox's network is torn down, at every Stop and every Remove of a
/// sandbox with a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Cni {
    pub(super) delay: Duration,
    pub(super) del: Del,
}

impl Cni {
    const fn new(delay_ms: u64, del: Del) -> Self {
        let delay = Duration::from_millis(delay_ms);
        Self { delay, del }
    }

    /// DEL succeeds at once.
    pub const fn healthy() -> Self {
        Self::new(0, Del::Works)
    }

    /// DEL succeeds after this delay.
    pub const fn slow(delay: Duration) -> Self {
        Self::healthy().after(delay)
    }

    /// DEL fails: `plugin type="bridge" failed (delete): network already deleted`.
    pub const fn failing() -> Self {
        Self::new(15, Del::Fails)
    }

    /// The plugin's program is missing.
    pub const fn plugin_missing() -> Self {
        Self::new(2, Del::PluginMissing)
    }

    /// There is no CNI configuration.
    pub const fn not_initialized() -> Self {
        Self::new(0, Del::NotInitialized)
    }

    /// DEL never ends.
    pub const fn hanging() -> Self {
        Self::new(0, Del::Hangs)
    }

    /// The same, after this long.
    pub const fn after(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }

    pub(super) fn error(self) -> Option<&'static str> {
        match self.del {
            Del::Works | Del::Hangs => None,
            Del::Fails => Some(r#"plugin type="bridge" failed (delete): network already deleted"#),
            Del::PluginMissing => Some(r#"failed to find plugin "bridge" in path [/opt/cni/bin]"#),
            Del::NotInitialized => Some("cni plugin not initialized"),
        }
    }
}

/// The duration of a removal: `each`, plus `crowding` for every other removal in flight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Disk {
    /// Duration of a single removal.
    pub each: Duration,
    /// Extra duration per other removal in flight.
    pub crowding: Duration,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum FaultKey {
    Rpc(Rpc),
    Removal(String),
    Status(String),
}

/// Everything that can change while the runtime serves.
#[derive(Clone, Debug)]
pub struct Conduct {
    pub(super) faults: BTreeMap<FaultKey, Fault>,
    /// What the network plugin does for sandboxes without their own setting.
    pub cni_default: Cni,
    pub(super) cni: BTreeMap<String, Cni>,
    /// How long removals take.
    pub disk: Disk,
    /// The largest message that the runtime sends.
    pub send_limit_bytes: usize,
    /// How long it takes to compress an answer; `None`: it cannot.
    pub gzip: Option<Duration>,
    /// Whether it has the streaming lists.
    pub streaming: bool,
    /// Whether it ignores filters of lists.
    pub ignores_filters: bool,
    /// After how many messages each stream breaks, or at its end if it has no more, and how.
    pub stream_break: Option<(usize, Status)>,
}

impl Conduct {
    pub(super) fn cni_of(&self, sandbox_id: &str) -> Cni {
        self.cni
            .get(sandbox_id)
            .copied()
            .unwrap_or(self.cni_default)
    }

    pub(super) fn hangs(&self, key: &FaultKey) -> bool {
        self.faults
            .get(key)
            .is_some_and(|fault| fault.effect == Effect::Hang)
    }

    /// Returns the replacement of an RPC's messages, if there is one.
    pub(super) fn garbage_for(&self, rpc: Rpc) -> Option<Vec<u8>> {
        match &self.faults.get(&FaultKey::Rpc(rpc))?.effect {
            Effect::Garble(bytes) => Some(bytes.clone()),
            Effect::Proceed | Effect::Hang | Effect::Pretend | Effect::Fail { .. } => None,
        }
    }

    /// Takes one occurrence of a fault; `None`: no fault.
    pub(super) fn take(&mut self, key: &FaultKey) -> Option<Fault> {
        let fault = self.faults.get_mut(key)?;
        if let Effect::Fail {
            left: Some(left), ..
        } = &mut fault.effect
        {
            *left = left.saturating_sub(1);
            if *left == 0 {
                return self.faults.remove(key);
            }
        }
        Some(fault.clone())
    }
}
