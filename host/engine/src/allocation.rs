//! How instances get their memory, decided from the machine that is really there.
//!
//! wasmtime's pooling allocator makes instances cheap and reserves address space for all of them at start: terabytes by
//! default, which a Raspberry Pi with 39 address bits, or a process under an address limit, does not have. So the pool
//! is sized from what can be reserved; where not even a small one fits, instances are allocated on demand with small
//! reservations. [`Allocation::choose`] is pure: the machine comes in, the choice comes out.

use rustix::process::{Resource, getrlimit};
use std::fmt;
use std::fs;
use wasmtime::{Config, Enabled, PoolingAllocationConfig};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// The address space that one pooled memory takes: what 32-bit code can name, so that it needs no bounds checks, and the
/// guard behind it.
const SLOT: u64 = 4 * GIB + 32 * MIB;
/// Fewer slots than this are not worth a pool.
const FEWEST_SLOTS: u64 = 16;
const MOST_SLOTS: u64 = 1024;
/// Instances that wait (for a client, a model, a timer) for each core that could run one. A slot costs start-up time and
/// page tables even when it is not used.
const SLOTS_PER_CORE: u64 = 128;
/// Memory that one live instance is reckoned with when the pool is sized.
const MEMORY_PER_SLOT: u64 = 8 * MIB;

/// Slots that are not used stay as they were, up to so many: the next instance in them touches no new page.
const WARM_SLOTS: u32 = 64;
/// The share of memory that all of them together may hold.
const WARM_SHARE: u64 = 128;
/// What each of them holds, at least and at most.
const WARM_BYTES: (u64, u64) = (64 << 10, 2 * MIB);

/// What this process may use of the machine.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Machine {
    /// Width of a user-space address.
    pub address_bits: u32,
    /// Bytes of address space that the process may take (`RLIMIT_AS`), if limited.
    pub address_limit: Option<u64>,
    /// Bytes of memory: the machine's, or the control group's where that is less.
    pub memory: u64,
    /// Cores that the process may run on.
    pub cores: u32,
    /// Whether the kernel tells which pages were written (`PAGEMAP_SCAN`, Linux 6.7): who empties a slot need not touch the others.
    pub tells_written_pages: bool,
}

impl Machine {
    /// Reads it from `/proc`, the control group and the resource limits.
    pub fn probe() -> Self {
        Self {
            address_bits: address_bits().unwrap_or(39),
            address_limit: getrlimit(Resource::As).current,
            memory: [total_memory(), group_memory()]
                .into_iter()
                .flatten()
                .min()
                .unwrap_or(512 * MIB),
            cores: std::thread::available_parallelism().map_or(1, |cores| cores.get() as u32),
            tells_written_pages: PoolingAllocationConfig::is_pagemap_scan_available(),
        }
    }

    /// Bytes that each slot which is not used keeps. All of them are written when it is emptied, where it is not known which need be.
    fn kept_by_slot(&self) -> u64 {
        let (least, most) = WARM_BYTES;
        match self.tells_written_pages {
            true => (self.memory / WARM_SHARE / u64::from(WARM_SLOTS)).clamp(least, most),
            false => least,
        }
    }

    fn address_space(&self) -> u64 {
        let width = 1u64.checked_shl(self.address_bits).unwrap_or(u64::MAX);
        self.address_limit.map_or(width, |limit| limit.min(width))
    }
}

/// The stack of a process begins just below the top of its address space (`startstack` in proc_pid_stat(5)).
fn address_bits() -> Option<u32> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    // The second field is the program's name, in brackets, and may hold anything.
    let (_, fields) = stat.rsplit_once(')')?;
    let stack: u64 = fields.split_whitespace().nth(25)?.parse().ok()?;
    (stack > 0).then(|| u64::BITS - stack.leading_zeros())
}

fn total_memory() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("MemTotal:"))?;
    Some(line.split_whitespace().nth(1)?.parse::<u64>().ok()? * 1024)
}

fn group_memory() -> Option<u64> {
    [
        "/sys/fs/cgroup/memory.max",
        "/sys/fs/cgroup/memory/memory.limit_in_bytes",
    ]
    .into_iter()
    .find_map(|path| fs::read_to_string(path).ok()?.trim().parse().ok())
}

/// How instances get their memory.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Allocation {
    /// Reserved at start, handed out in microseconds.
    Pool {
        /// Instances that can live at once.
        slots: u32,
        /// Bytes of its memory that a slot which is not used keeps.
        keeps: u64,
    },
    /// Mapped for each instance, with small reservations: slower, fits anywhere.
    OnDemand {
        /// Instances that can live at once.
        slots: u32,
    },
}

impl Allocation {
    /// The best that this machine can hold.
    pub fn choose(machine: &Machine) -> Self {
        let by_cores = (u64::from(machine.cores) * SLOTS_PER_CORE).min(MOST_SLOTS);
        let by_memory = (machine.memory / MEMORY_PER_SLOT).clamp(FEWEST_SLOTS, by_cores.max(FEWEST_SLOTS));
        // Half of the address space: code, models and the store map files too.
        let by_addresses = machine.address_space() / 2 / SLOT;
        match by_memory.min(by_addresses) {
            slots if slots >= FEWEST_SLOTS => Self::Pool {
                slots: slots as u32,
                keeps: machine.kept_by_slot(),
            },
            _ => Self::OnDemand {
                slots: by_memory.min(256) as u32,
            },
        }
    }

    /// Instances that can live at once.
    pub const fn slots(&self) -> u32 {
        match self {
            Self::Pool { slots, .. } | Self::OnDemand { slots } => *slots,
        }
    }

    pub(crate) fn apply(&self, config: &mut Config) {
        match *self {
            Self::Pool { slots, keeps } => {
                config.allocation_strategy(pool(slots, keeps));
            }
            Self::OnDemand { .. } => {
                config
                    .memory_reservation(16 * MIB)
                    .memory_reservation_for_growth(MIB)
                    .memory_guard_size(64 << 10)
                    .gc_heap_reservation(MIB)
                    .gc_heap_reservation_for_growth(MIB)
                    .gc_heap_guard_size(64 << 10)
                    .guard_before_linear_memory(false);
            }
        }
    }
}

fn pool(slots: u32, keeps: u64) -> PoolingAllocationConfig {
    let mut pool = PoolingAllocationConfig::new();
    pool.total_component_instances(slots)
        .total_core_instances(slots.saturating_mul(8))
        .total_memories(slots)
        .total_tables(slots.saturating_mul(4))
        .total_stacks(slots)
        .total_gc_heaps(slots)
        .max_unused_warm_slots(slots.min(WARM_SLOTS))
        .max_component_instance_size(4 << 20)
        .max_core_instance_size(4 << 20)
        .max_core_instances_per_component(256)
        .max_memories_per_component(32)
        .max_tables_per_component(128)
        .table_elements(100_000)
        .max_memory_size(4 * GIB as usize)
        // What stays resident between uses of a slot saves page faults; it is memory that an idle node holds.
        .linear_memory_keep_resident(keeps as usize)
        .table_keep_resident(16 << 10)
        .async_stack_keep_resident(32 << 10)
        .pagemap_scan(Enabled::Auto);
    pool
}

impl fmt::Display for Allocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pool { slots, .. } => write!(f, "pool of {slots} instances"),
            Self::OnDemand { slots } => write!(f, "on demand, at most {slots} instances"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERVER: Machine = Machine {
        address_bits: 47,
        address_limit: None,
        memory: 24 * GIB,
        cores: 8,
        tells_written_pages: true,
    };

    #[test]
    fn a_server_gets_a_full_pool() {
        let pool = Allocation::Pool {
            slots: 1024,
            keeps: 2 * MIB,
        };
        assert_eq!(Allocation::choose(&SERVER), pool);
    }

    #[test]
    fn a_board_with_39_bits_gets_a_pool_that_fits() {
        let board = Machine {
            address_bits: 38,
            memory: 4 * GIB,
            ..SERVER
        };
        let Allocation::Pool { slots, keeps } = Allocation::choose(&board) else {
            panic!("no pool")
        };
        assert!(u64::from(slots) * SLOT <= (1 << 38) / 2);
        assert!(keeps * u64::from(WARM_SLOTS) <= board.memory / WARM_SHARE);
    }

    #[test]
    fn slots_keep_little_where_all_of_it_is_written_to_empty_them() {
        let older = Machine {
            tells_written_pages: false,
            ..SERVER
        };
        let pool = Allocation::Pool {
            slots: 1024,
            keeps: 64 << 10,
        };
        assert_eq!(Allocation::choose(&older), pool);
    }

    #[test]
    fn under_an_address_limit_instances_come_on_demand() {
        let limited = Machine {
            address_limit: Some(2 * GIB),
            ..SERVER
        };
        assert!(matches!(
            Allocation::choose(&limited),
            Allocation::OnDemand { .. }
        ));
    }

    #[test]
    fn this_machine_can_be_read() {
        let machine = Machine::probe();
        assert!((30..=64).contains(&machine.address_bits), "{machine:?}");
        assert!(machine.memory > 64 * MIB);
    }
}
