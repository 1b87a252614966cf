//! One instance of a policy, and the engine that it runs in.

use super::{convert, text};
use crate::allocation::Allocation;
use crate::capability::bindings::policy::{Select, SelectPre};
use crate::limiter::{Limiter, Refused};
use karman_sched::select::{Ask, Choice, Failure, Guest, PolicyPlugin, Served, Task};
use karman_types::{Limits, Slo};
use tokio::sync::OwnedSemaphorePermit;
use wasmtime::component::types::ComponentItem;
use wasmtime::component::{Component, Linker};
use wasmtime::{Config, Engine, OptLevel, Store, Trap};

/// The stack of a policy.
const STACK_BYTES: usize = 512 << 10;
/// The most bytes that are copied out of a policy for one call: its state, and a little.
const MOST_COPIED: usize = (1 << 20) + (64 << 10);

/// What an instance has of the host.
pub(crate) struct Sandbox {
    limiter: Limiter,
    /// What it wrote to standard error during this call.
    pub(super) text: text::Text,
    /// The handles of streams that it holds.
    pub(super) streams: usize,
}

/// The engine for policies: what a call does depends on nothing but its arguments.
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

/// A policy, ready to be instantiated. What it imports is there by name, and traps.
pub(crate) fn link(engine: &Engine, component: &Component) -> wasmtime::Result<SelectPre<Sandbox>> {
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
    SelectPre::new(linker.instantiate_pre(component)?)
}

/// A policy that has begun.
pub(super) struct Instance {
    store: Store<Sandbox>,
    select: Select,
    plugin: PolicyPlugin,
    _place: OwnedSemaphorePermit,
}

impl Instance {
    pub(super) fn start(
        pre: &SelectPre<Sandbox>,
        plugin: &PolicyPlugin,
        (limits, place): (&Limits, OwnedSemaphorePermit),
        (tasks, slo): (&[Task], &Slo),
        state: Option<&[u8]>,
    ) -> Result<Self, Failure> {
        let sandbox = Sandbox {
            limiter: Limiter::new(limits),
            text: text::Text::default(),
            streams: 0,
        };
        let mut store = Store::new(pre.engine(), sandbox);
        store.limiter(|sandbox| &mut sandbox.limiter);
        store.set_hostcall_fuel(MOST_COPIED);
        let made = store
            .set_fuel(plugin.fuel)
            .and_then(|()| pre.instantiate(&mut store));
        let mut instance = match made {
            Ok(select) => Self {
                select,
                store,
                plugin: plugin.clone(),
                _place: place,
            },
            Err(error) => return Err(explain(&store, plugin, &error, |why| Failure::Host { why })),
        };
        let tasks: Vec<_> = tasks.iter().map(convert::task).collect();
        let slo = convert::slo(slo);
        instance.call(|select, store| select.karman_policy_selector().call_begin(store, &tasks, slo))?;
        if let Some(state) = state {
            instance.call(|select, store| select.karman_policy_selector().call_resume(store, state))?;
        }
        Ok(instance)
    }

    /// One call with all the fuel that a call has.
    fn call<T>(
        &mut self,
        call: impl FnOnce(&Select, &mut Store<Sandbox>) -> wasmtime::Result<Result<T, String>>,
    ) -> Result<T, Failure> {
        let sandbox = self.store.data_mut();
        sandbox.text.clear();
        sandbox.limiter.forget_refusal();
        let called = self
            .store
            .set_fuel(self.plugin.fuel)
            .and_then(|()| call(&self.select, &mut self.store));
        match called {
            Ok(answer) => answer.map_err(|why| Failure::Refused {
                why: text::plain(&why),
            }),
            // Only what it gave, and could not be read, is left.
            Err(error) => Err(explain(&self.store, &self.plugin, &error, |why| {
                Failure::Unreadable { why }
            })),
        }
    }
}

impl Guest for Instance {
    fn choose(&mut self, ask: &Ask<'_>) -> Result<Choice, Failure> {
        let ask = convert::ask(ask);
        self.call(|select, store| select.karman_policy_selector().call_choose(store, &ask))
            .map(convert::choice)
    }

    fn report(&mut self, served: &Served<'_>) -> Result<(), Failure> {
        let served = convert::served(served);
        self.call(|select, store| select.karman_policy_selector().call_report(store, &served))
    }

    fn save(&mut self) -> Result<Vec<u8>, Failure> {
        self.call(|select, store| select.karman_policy_selector().call_save(store))
    }
}

/// What ended a call; `other` where it was neither a trap nor a limit. The words are the same on every machine, so that a replay can
/// compare them.
fn explain(
    store: &Store<Sandbox>,
    plugin: &PolicyPlugin,
    error: &wasmtime::Error,
    other: fn(String) -> Failure,
) -> Failure {
    let sandbox = store.data();
    let trap = error.downcast_ref::<Trap>();
    if let Some(Trap::OutOfFuel) = trap {
        return Failure::Fuel { fuel: plugin.fuel };
    }
    // A guest that is refused memory goes on until its own library gives up.
    if let Some(Refused::Memory) = sandbox.limiter.refused() {
        return Failure::Memory {
            memory: plugin.memory,
        };
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
