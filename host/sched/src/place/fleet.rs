use super::PlaceError;
use karman_types::NodeId;
use serde::{Deserialize, Serialize};

/// What is known of the nodes that tasks can be placed on.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Fleet {
    /// The nodes. Decisions name them by their place here.
    pub nodes: Vec<Node>,
    /// What tasks run, with the measured costs of starting it.
    pub components: Vec<Component>,
    /// Seconds that the first byte takes from a node to another one: in the same cluster, and to another cluster.
    pub latency: [f64; 2],
}

/// A plugin, or a model, as far as starting it costs time and space.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Component {
    /// Bytes that it takes on a node that holds it.
    pub bytes: u64,
    /// Bytes that a node which does not hold it has to fetch.
    pub fetch: u64,
    /// Seconds until it runs where a warm instance waits, on a node of speed 1.
    pub warm: f64,
    /// Seconds until a further instance runs where it is held, on a node of speed 1.
    pub scale_out: f64,
    /// Seconds until it runs once it is fetched, on a node of speed 1: compile or load, then instantiate.
    pub cold: f64,
}

/// How a task starts on a node. The later ones take longer, and the earlier ones are not always there.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// On a warm instance, once that is free.
    Warm,
    /// On a further instance of a component that the node holds.
    ScaleOut,
    /// The node fetches and loads the component first.
    Cold,
}

/// One node of a fleet.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Node {
    /// Its id.
    pub id: NodeId,
    /// The cluster that it belongs to.
    pub cluster: usize,
    /// Work that it does in a second, on each slot.
    pub speed: f64,
    /// Bytes that it sends or receives in a second.
    pub rate: f64,
    /// Bytes of components that it can hold.
    pub memory: u64,
    /// What runs on it, one task each.
    pub slots: Vec<Slot>,
    /// The components that it holds.
    pub resident: Vec<Resident>,
    /// When it can be reached from other nodes, in order and apart; always where there is none.
    pub windows: Vec<Window>,
}

/// Room for one task.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct Slot {
    /// When it is free, as far as is known.
    pub free_at: f64,
    /// The component whose instance it keeps.
    pub warm: Option<usize>,
}

/// A component that a node holds.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct Resident {
    /// Which, by its place in [`Fleet::components`].
    pub component: usize,
    /// When it was last started.
    pub used_at: f64,
}

/// A time in which a node can be reached.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct Window {
    /// From then on.
    pub from: f64,
    /// Until then.
    pub until: f64,
}

impl Node {
    /// A node that holds nothing, always reachable, with this many free slots.
    pub fn new(id: NodeId, cluster: usize, speed: f64, rate: f64, memory: u64, slots: usize) -> Self {
        let slot = Slot {
            free_at: 0.0,
            warm: None,
        };
        Self {
            id,
            cluster,
            speed,
            rate,
            memory,
            slots: vec![slot; slots],
            resident: Vec::new(),
            windows: Vec::new(),
        }
    }

    /// Whether it holds a component.
    pub fn holds(&self, component: usize) -> bool {
        self.resident
            .iter()
            .any(|resident| resident.component == component)
    }

    /// How many of its slots are taken at this time, as a share.
    pub fn load(&self, now: f64) -> f64 {
        let taken = self.slots.iter().filter(|slot| slot.free_at > now).count();
        taken as f64 / self.slots.len() as f64
    }

    /// The ways in which a component can start, each with the slot on which it starts first: a warm instance where there is one, and
    /// one more, for which it has to be loaded if the node does not hold it.
    pub fn ways(&self, component: usize) -> [Option<(Mode, usize)>; 2] {
        // The earliest free; of two, the one that keeps no instance.
        let (mut warm, mut other) = (None, None);
        let (mut warm_at, mut other_at) = (f64::INFINITY, (f64::INFINITY, true));
        for (place, slot) in self.slots.iter().enumerate() {
            let at = (slot.free_at, slot.warm.is_some());
            if slot.warm == Some(component) {
                if warm.is_none() || slot.free_at < warm_at {
                    (warm, warm_at) = (Some((Mode::Warm, place)), slot.free_at);
                }
            } else if other.is_none() || at < other_at {
                (other, other_at) = (Some(place), at);
            }
        }
        let mode = match warm.is_some() || self.holds(component) {
            true => Mode::ScaleOut,
            false => Mode::Cold,
        };
        [warm, other.map(|place| (mode, place))]
    }

    /// Takes a slot until `until` for a component. It is held from now on; what had not been used for the longest time gives way.
    /// Returns what gave way.
    pub fn start(
        &mut self,
        components: &[Component],
        component: usize,
        slot: usize,
        now: f64,
        until: f64,
    ) -> Vec<usize> {
        self.slots[slot] = Slot {
            free_at: until,
            warm: Some(component),
        };
        if let Some(resident) = self.resident.iter_mut().find(|held| held.component == component) {
            resident.used_at = now;
            return Vec::new();
        }
        let gone = self.give_way(components, components[component].bytes, now);
        self.resident.push(Resident {
            component,
            used_at: now,
        });
        gone
    }

    /// Lets go of components until this many bytes are free. What runs stays.
    fn give_way(&mut self, components: &[Component], bytes: u64, now: f64) -> Vec<usize> {
        let mut gone = Vec::new();
        let held = |resident: &[Resident]| -> u64 {
            resident.iter().map(|held| components[held.component].bytes).sum()
        };
        while held(&self.resident) + bytes > self.memory {
            let runs = |held: &Resident| {
                let mut busy = self.slots.iter().filter(|slot| slot.free_at > now);
                busy.any(|slot| slot.warm == Some(held.component))
            };
            let idle = self.resident.iter().enumerate().filter(|(_, held)| !runs(held));
            let Some((place, _)) = idle.min_by(|a, b| a.1.used_at.total_cmp(&b.1.used_at)) else {
                break;
            };
            let component = self.resident.remove(place).component;
            for slot in &mut self.slots {
                slot.warm = slot.warm.filter(|warm| *warm != component);
            }
            gone.push(component);
        }
        gone
    }

    /// The first window that is open at this time or later.
    fn window(&self, at: f64) -> Option<Window> {
        let always = Window {
            from: f64::NEG_INFINITY,
            until: f64::INFINITY,
        };
        match self.windows[..] {
            [] => Some(always),
            _ => self.windows.iter().find(|window| window.until > at).copied(),
        }
    }
}

impl Fleet {
    /// Checks what the policies count on.
    ///
    /// # Errors
    /// [`PlaceError`] names the first number that is out of its bounds.
    pub fn check(&self) -> Result<(), PlaceError> {
        let number = |field: String, value: f64, fits: bool| match fits {
            true => Ok(()),
            false => Err(PlaceError::Number { field, value }),
        };
        let not_negative = |value: f64| value.is_finite() && value >= 0.0;
        let positive = |value: f64| value.is_finite() && value > 0.0;
        if self.nodes.is_empty() {
            return Err(PlaceError::NoNodes);
        }
        for (place, latency) in self.latency.iter().enumerate() {
            number(format!("latency[{place}]"), *latency, not_negative(*latency))?;
        }
        for (place, component) in self.components.iter().enumerate() {
            for (name, value) in [
                ("warm", component.warm),
                ("scale_out", component.scale_out),
                ("cold", component.cold),
            ] {
                number(format!("components[{place}].{name}"), value, not_negative(value))?;
            }
        }
        for (place, node) in self.nodes.iter().enumerate() {
            number(format!("nodes[{place}].speed"), node.speed, positive(node.speed))?;
            number(format!("nodes[{place}].rate"), node.rate, positive(node.rate))?;
            let slots = node.slots.len() as f64;
            number(format!("nodes[{place}].slots"), slots, slots > 0.0)?;
            for slot in &node.slots {
                number(
                    format!("nodes[{place}].free_at"),
                    slot.free_at,
                    slot.free_at.is_finite(),
                )?;
            }
            let mut named = node.resident.iter().map(|held| held.component);
            let mut named = named
                .by_ref()
                .chain(node.slots.iter().filter_map(|slot| slot.warm));
            if let Some(component) = named.find(|component| *component >= self.components.len()) {
                return Err(PlaceError::NoComponent { component });
            }
            let ends = node.windows.iter().flat_map(|window| [window.from, window.until]);
            let ends: Vec<f64> = ends.collect();
            if let Some(pair) = ends
                .windows(2)
                .find(|pair| pair[0].is_nan() || pair[1].is_nan() || pair[0] > pair[1])
            {
                let field = format!("nodes[{place}].windows");
                return Err(PlaceError::Number {
                    field,
                    value: pair[1],
                });
            }
        }
        Ok(())
    }

    /// The speed of the fastest node.
    pub fn fastest(&self) -> f64 {
        self.nodes.iter().map(|node| node.speed).fold(0.0, f64::max)
    }

    /// When bytes that lie at a node from some time on are at another one; nothing where the two never meet for long enough.
    pub fn arrival(&self, from: usize, to: usize, bytes: u64, mut at: f64) -> Option<f64> {
        if from == to {
            return Some(at);
        }
        let (a, b) = (&self.nodes[from], &self.nodes[to]);
        let latency = self.latency[usize::from(a.cluster != b.cluster)];
        let takes = latency + bytes as f64 / a.rate.min(b.rate);
        if a.windows.is_empty() && b.windows.is_empty() {
            return Some(at + takes);
        }
        loop {
            let (x, y) = (a.window(at)?, b.window(at)?);
            at = at.max(x.from).max(y.from);
            let until = x.until.min(y.until);
            if at + takes <= until {
                return Some(at + takes);
            }
            at = until.max(at);
        }
    }

    /// Seconds from a free slot to a running task.
    pub fn startup(&self, component: usize, node: usize, mode: Mode) -> f64 {
        let (component, node) = (&self.components[component], &self.nodes[node]);
        match mode {
            Mode::Warm => component.warm / node.speed,
            Mode::ScaleOut => component.scale_out / node.speed,
            Mode::Cold => component.cold / node.speed + component.fetch as f64 / node.rate,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn component(bytes: u64) -> Component {
        Component {
            bytes,
            fetch: 10,
            warm: 0.0,
            scale_out: 1.0,
            cold: 5.0,
        }
    }

    fn node(name: u8) -> Node {
        Node::new(NodeId::of_key(&[name]), 0, 1.0, 10.0, 100, 2)
    }

    #[test]
    fn what_was_used_last_stays() {
        let components = [component(60), component(40), component(60)];
        let mut node = node(0);
        assert_eq!(node.ways(0), [None, Some((Mode::Cold, 0))]);
        assert!(node.start(&components, 0, 0, 0.0, 1.0).is_empty());
        assert!(node.start(&components, 1, 1, 2.0, 3.0).is_empty());
        assert_eq!(node.ways(0), [Some((Mode::Warm, 0)), Some((Mode::ScaleOut, 1))]);
        assert_eq!(node.start(&components, 2, 1, 4.0, 9.0), [0]);
        assert_eq!(node.slots[0].warm, None);
        assert_eq!(node.load(5.0), 0.5);
        // What runs stays, also when there is no room.
        assert_eq!(node.start(&components, 0, 0, 5.0, 6.0), [1]);
        assert!(node.holds(2));
    }

    #[test]
    fn bytes_wait_until_both_ends_can_be_reached() {
        let mut fleet = Fleet {
            nodes: vec![node(0), node(1)],
            components: Vec::new(),
            latency: [0.5, 2.0],
        };
        assert_eq!(fleet.arrival(0, 1, 10, 3.0), Some(4.5));
        assert_eq!(fleet.arrival(1, 1, 10, 3.0), Some(3.0));
        let window = |from, until| Window { from, until };
        fleet.nodes[0].windows = vec![window(0.0, 4.0), window(10.0, 20.0)];
        fleet.nodes[1].windows = vec![window(0.0, 11.0), window(15.0, 16.6)];
        assert_eq!(fleet.check(), Ok(()));
        assert_eq!(fleet.arrival(0, 1, 10, 3.0), Some(16.5));
        assert_eq!(fleet.arrival(0, 1, 20, 3.0), None);
        fleet.nodes[0].speed = f64::NAN;
        assert_eq!(
            fleet.check().unwrap_err().to_string(),
            "nodes[0].speed is NaN, which nothing can be placed by"
        );
    }
}
