//! Where plugins run that decide by nothing but what they are asked: the engine, and one instance.

use super::text;
use crate::allocation::Allocation;
use crate::limiter::{Limiter, Refused};
use karman_sched::plugin::Failure;
use karman_types::{ByteSize, Limits};
use wasmtime::component::types::ComponentItem;
use wasmtime::component::{Component, InstancePre, Linker};
use wasmtime::{Config, Engine, OptLevel, Store, Trap};

/// The stack of an instance.
const STACK_BYTES: usize = 512 << 10;

/// What an instance has of the host.
pub(crate) struct Sandbox {
    limiter: Limiter,
    /// What it wrote to standard error during this call.
    pub(super) text: text::Text,
    /// The handles of streams that it holds.
    pub(super) streams: usize,
}

/// The engine: what a call does depends on nothing but its arguments.
pub(crate) fn engine() -> wasmtime::Result<Engine> {
    let mut config = Config::new();
    config
        .cranelift_opt_level(OptLevel::Speed)
        .cranelift_nan_canonicalization(true)
        .relaxed_simd_deterministic(true)
        .concurrency_support(false)
        .consume_fuel(true)
        .memory_init_cow(true)
        .max_wasm_stack(STACK_BYTES);
    Allocation::OnDemand { slots: 0 }.apply(&mut config);
    Engine::new(&config)
}

/// A component, ready to be instantiated. What it imports is there by name, and traps.
pub(crate) fn link(engine: &Engine, component: &Component) -> wasmtime::Result<InstancePre<Sandbox>> {
    let mut linker = Linker::new(engine);
    let imports = component.component_type();
    for (name, import) in imports.imports(engine) {
        let ComponentItem::ComponentInstance(instance) = import.ty else {
            continue;
        };
        // Interfaces hand the stream's type on to each other.
        if instance.get_export(engine, text::STREAM).is_some() {
            text::link_stream(&mut linker, name)?;
        }
        text::link(&mut linker, name)?;
    }
    linker.define_unknown_imports_as_traps(component)?;
    linker.instantiate_pre(component)
}

/// What one instance may use.
pub(crate) struct Allowance<'a> {
    /// Of its memory and tables.
    pub(crate) limits: &'a Limits,
    /// Units of fuel for one call.
    pub(crate) fuel: u64,
    /// The most bytes that are copied out of it for one call.
    pub(crate) copied: usize,
}

/// One instance, by what it exports.
pub(crate) struct Instance<T> {
    store: Store<Sandbox>,
    exports: T,
    fuel: u64,
    memory: ByteSize,
}

impl<T> Instance<T> {
    /// A new one, made with all the fuel that a call has.
    pub(crate) fn start(
        engine: &Engine,
        allowance: &Allowance<'_>,
        instantiate: impl FnOnce(&mut Store<Sandbox>) -> wasmtime::Result<T>,
    ) -> Result<Self, Failure> {
        let sandbox = Sandbox {
            limiter: Limiter::new(allowance.limits),
            text: text::Text::default(),
            streams: 0,
        };
        let (fuel, memory) = (allowance.fuel, allowance.limits.memory);
        let mut store = Store::new(engine, sandbox);
        store.limiter(|sandbox| &mut sandbox.limiter);
        store.set_hostcall_fuel(allowance.copied);
        let made = store.set_fuel(fuel).and_then(|()| instantiate(&mut store));
        match made {
            Ok(exports) => Ok(Self {
                store,
                exports,
                fuel,
                memory,
            }),
            Err(error) => Err(explain(&store, (fuel, memory), &error, |why| Failure::Host {
                why,
            })),
        }
    }

    /// One call with all the fuel that a call has.
    pub(crate) fn call<A>(
        &mut self,
        call: impl FnOnce(&T, &mut Store<Sandbox>) -> wasmtime::Result<Result<A, String>>,
    ) -> Result<A, Failure> {
        let sandbox = self.store.data_mut();
        sandbox.text.clear();
        sandbox.limiter.forget_refusal();
        let called = self
            .store
            .set_fuel(self.fuel)
            .and_then(|()| call(&self.exports, &mut self.store));
        match called {
            Ok(answer) => answer.map_err(|why| Failure::Refused {
                why: text::plain(&why),
            }),
            // Only what it gave, and could not be read, is left.
            Err(error) => {
                let had = (self.fuel, self.memory);
                Err(explain(&self.store, had, &error, |why| Failure::Unreadable {
                    why,
                }))
            }
        }
    }
}

/// What ended a call that had this fuel and memory; `other` where it was neither a trap nor a limit. The words are the same on every
/// machine, so that a replay can compare them.
fn explain(
    store: &Store<Sandbox>,
    (fuel, memory): (u64, ByteSize),
    error: &wasmtime::Error,
    other: fn(String) -> Failure,
) -> Failure {
    let sandbox = store.data();
    let trap = error.downcast_ref::<Trap>();
    if let Some(Trap::OutOfFuel) = trap {
        return Failure::Fuel { fuel };
    }
    // A guest that is refused memory goes on until its own library gives up.
    if let Some(Refused::Memory) = sandbox.limiter.refused() {
        return Failure::Memory { memory };
    }
    let cause = error.root_cause().to_string();
    if let Some(import) = text::forbidden(&cause) {
        return Failure::Forbidden { import };
    }
    let said = sandbox.text.plain();
    match trap {
        Some(trap) if said.is_empty() => Failure::Trapped {
            trap: trap.to_string(),
        },
        Some(trap) => Failure::Trapped {
            trap: format!("{trap}: {said}"),
        },
        None => other(text::plain(&cause)),
    }
}
