use wasmparser::{
    ComponentAlias, ComponentExternalKind, ComponentInstance, ComponentOuterAliasKind, Encoding, Payload,
    Result,
};

/// The most items that there may be after every component in a file was put in wherever it is instantiated; a component of Python has 1,600.
pub(super) const MOST_ITEMS: u64 = 1_000_000;

/// Counts the items of a component (instances, aliases, functions) as often as they will be there: components within it are put in
/// wherever they are instantiated, and what is instantiated twice at each of 30 levels is there a billion times.
#[derive(Default)]
pub(super) struct Items {
    /// The modules and components that have begun and not ended.
    open: Vec<Open>,
    /// What is in the largest component that has ended.
    most: u64,
    /// How much larger it may be for components that are not known here.
    times: u64,
}

#[derive(Default)]
struct Open {
    is_component: bool,
    items: u64,
    /// By their index, how many items the components have that it knows; none for one that comes from somewhere else.
    components: Vec<Option<u64>>,
    /// How often it instantiates one that comes from somewhere else.
    unknown: u64,
}

impl Items {
    pub(super) fn add(&mut self, payload: &Payload<'_>) -> Result<()> {
        if let Payload::Version { encoding, .. } = payload {
            self.open.push(Open {
                is_component: *encoding == Encoding::Component,
                ..Open::default()
            });
        }
        let Some(open) = self.open.last_mut() else {
            return Ok(());
        };
        match payload {
            Payload::InstanceSection(section) => open.items += u64::from(section.count()),
            Payload::ComponentCanonicalSection(section) => open.items += u64::from(section.count()),
            Payload::ComponentImportSection(section) => {
                open.items += u64::from(section.count());
                for import in section.clone() {
                    open.learn(import?.ty.kind() == ComponentExternalKind::Component);
                }
            }
            Payload::ComponentExportSection(section) => {
                open.items += u64::from(section.count());
                for export in section.clone() {
                    open.learn(export?.kind == ComponentExternalKind::Component);
                }
            }
            Payload::ComponentAliasSection(section) => {
                open.items += u64::from(section.count());
                for alias in section.clone() {
                    open.learn(matches!(
                        alias?,
                        ComponentAlias::InstanceExport {
                            kind: ComponentExternalKind::Component,
                            ..
                        } | ComponentAlias::Outer {
                            kind: ComponentOuterAliasKind::Component,
                            ..
                        }
                    ));
                }
            }
            Payload::ComponentInstanceSection(section) => {
                for instance in section.clone() {
                    open.items = open.items.saturating_add(1);
                    if let ComponentInstance::Instantiate { component_index, .. } = instance? {
                        open.instantiate(component_index);
                    }
                }
            }
            Payload::End(_) => self.end(),
            _ => {}
        }
        Ok(())
    }

    /// The most that there can be.
    pub(super) fn most(&self) -> u64 {
        self.most.saturating_mul(self.times.saturating_add(1))
    }

    fn end(&mut self) {
        let Some(ended) = self.open.pop().filter(|ended| ended.is_component) else {
            return;
        };
        self.most = self.most.max(ended.items);
        // One from somewhere else can be any other, itself with as many of what it does not know.
        self.times = (self.times + 1).saturating_mul(ended.unknown + 1) - 1;
        if let Some(around) = self.open.last_mut() {
            around.components.push(Some(ended.items));
        }
    }
}

impl Open {
    fn learn(&mut self, is_component: bool) {
        if is_component {
            self.components.push(None);
        }
    }

    fn instantiate(&mut self, index: u32) {
        match self.components.get(index as usize).copied().flatten() {
            Some(items) => self.items = self.items.saturating_add(items),
            None => self.unknown += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wasmparser::Parser;

    fn items(text: &str) -> u64 {
        let bytes = wat::parse_str(text).unwrap();
        let mut items = Items::default();
        for payload in Parser::new(0).parse_all(&bytes) {
            items.add(&payload.unwrap()).unwrap();
        }
        items.most()
    }

    #[test]
    fn what_is_instantiated_is_there_each_time() {
        assert_eq!(items("(component)"), 0);
        assert_eq!(
            items(
                "(component
                    (component $c (core module $m) (core instance (instantiate $m)) (core instance (instantiate $m)))
                    (instance (instantiate $c)) (instance (instantiate $c)) (instance (instantiate $c)))"
            ),
            3 + 3 * 2
        );
        // The last of them is a billion times in the first.
        let mut nested = "(component $c)".to_owned();
        for _ in 0..30 {
            nested =
                format!("(component $c {nested} (instance (instantiate $c)) (instance (instantiate $c)))");
        }
        assert!(items(&nested) > 1 << 30);
    }

    #[test]
    fn a_component_from_somewhere_else_may_be_any() {
        assert_eq!(
            items(
                "(component
                    (component $c (core module $m) (core instance (instantiate $m)))
                    (component $d (import \"c\" (component $e))
                        (instance (instantiate $e)) (instance (instantiate $e)))
                    (instance (instantiate $d (with \"c\" (component $c)))))"
            ),
            // Four of the outer one: itself, and what `$d` has twice.
            4 * 3
        );
    }
}
