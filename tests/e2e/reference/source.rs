//! Types as they stand in the sources: their keys, and what their doc comments say.

use super::{root, words};
use std::path::Path;
use syn::ext::IdentExt;
use syn::{
    Attribute, Expr, ExprLit, Fields, GenericArgument, Item, ItemEnum, Lit, LitStr, Meta, PathArguments,
    Token, Type,
};

/// A key of a file.
pub(super) struct Key {
    pub(super) name: String,
    pub(super) ty: Type,
    pub(super) doc: String,
    pub(super) required: bool,
}

/// A table of a file.
pub(super) struct Table {
    pub(super) about: String,
    pub(super) keys: Vec<Key>,
}

/// What serde is told, as far as it shows in a file.
#[derive(Default)]
struct Told {
    rename: Option<String>,
    rename_all: Option<String>,
    rename_all_fields: Option<String>,
    tag: Option<String>,
    default: bool,
    skip: bool,
}

impl Told {
    fn of(attributes: &[Attribute]) -> Self {
        let mut told = Self::default();
        for attribute in attributes
            .iter()
            .filter(|attribute| attribute.path().is_ident("serde"))
        {
            let read = attribute.parse_nested_meta(|meta| {
                let value = match meta.input.peek(Token![=]) {
                    true => Some(meta.value()?.parse::<LitStr>()?.value()),
                    false => None,
                };
                match meta.path.get_ident().map(ToString::to_string).as_deref() {
                    Some("rename") => told.rename = value,
                    Some("rename_all") => told.rename_all = value,
                    Some("rename_all_fields") => told.rename_all_fields = value,
                    Some("tag") => told.tag = value,
                    Some("default") => told.default = true,
                    Some("skip") => told.skip = true,
                    _ => {}
                }
                Ok(())
            });
            read.unwrap();
        }
        told
    }
}

/// The table that a struct reads.
pub(super) fn table(file: &str, name: &str) -> Table {
    let Item::Struct(item) = item(file, name) else {
        panic!("`{name}` in {file} is no struct");
    };
    let told = Told::of(&item.attrs);
    Table {
        about: doc(&item.attrs),
        keys: keys(item.fields, told.rename_all.as_deref(), told.default),
    }
}

/// The tables that an enum reads, by the values of its tag; the name of that first. A variant that wraps a struct has it in a file of its
/// own, beside this one.
pub(super) fn variants(file: &str, name: &str) -> (String, Vec<(String, Table)>) {
    let item = choice(file, name);
    let told = Told::of(&item.attrs);
    let tables = item.variants.into_iter().map(|variant| {
        let ident = variant.ident.to_string();
        let table = match variant.fields {
            Fields::Unnamed(_) => {
                let beside = Path::new(file).with_file_name(format!("{}.rs", apart(&ident, '_')));
                table(beside.to_str().unwrap(), &ident)
            }
            fields => Table {
                about: doc(&variant.attrs),
                keys: keys(fields, told.rename_all_fields.as_deref(), false),
            },
        };
        (apart(&ident, '-'), table)
    });
    let tables = tables.collect();
    (told.tag.unwrap(), tables)
}

/// What a type is called on the page.
pub(super) fn kind(file: &str, ty: &Type) -> String {
    let Type::Path(path) = ty else {
        panic!("{file} has a key whose type has no name");
    };
    let last = path.path.segments.last().unwrap();
    let inside: Vec<&Type> = match &last.arguments {
        PathArguments::AngleBracketed(given) => given
            .args
            .iter()
            .filter_map(|argument| match argument {
                GenericArgument::Type(ty) => Some(ty),
                _ => None,
            })
            .collect(),
        _ => Vec::new(),
    };
    match (last.ident.to_string().as_str(), inside.as_slice()) {
        ("Option" | "Box", [inner]) => kind(file, inner),
        ("Vec", [inner]) => format!("list of {}", several(kind(file, inner))),
        ("BTreeMap", [_, inner]) => format!("{} by name", several(kind(file, inner))),
        (name, _) => words::of(file, name),
    }
}

fn several(kind: String) -> String {
    match kind.ends_with(|c: char| c.is_ascii_alphabetic()) {
        true => kind + "s",
        false => kind,
    }
}

/// What may stand for an enum: `"a"`, or `{ b = … }` with something in it.
pub(super) fn choices(file: &str, name: &str) -> String {
    let item = choice(file, name);
    let told = Told::of(&item.attrs);
    let written = |ident: &syn::Ident| match told.rename_all.as_deref() {
        Some("kebab-case") => apart(&ident.to_string(), '-'),
        Some("lowercase") => ident.to_string().to_lowercase(),
        other => panic!("`{name}` in {file} is renamed by {other:?}"),
    };
    let named = item
        .variants
        .into_iter()
        .filter(|variant| !Told::of(&variant.attrs).skip);
    let all = named.map(|variant| {
        let called = written(&variant.ident);
        match variant.fields {
            Fields::Unit => format!("`\"{called}\"`"),
            Fields::Unnamed(inner) => {
                let inner = inner.unnamed.first().map(|field| kind(file, &field.ty));
                format!("`{{ {called} = … }}` ({})", inner.unwrap_or_default())
            }
            fields => {
                let keys = keys(fields, told.rename_all_fields.as_deref(), false);
                let keys: Vec<_> = keys.iter().map(|key| format!("{} = …", key.name)).collect();
                format!("`{{ {called} = {{ {} }} }}`", keys.join(", "))
            }
        }
    });
    let mut all: Vec<_> = all.collect();
    match all.pop() {
        Some(last) if !all.is_empty() => format!("{} or {last}", all.join(", ")),
        last => last.unwrap_or_default(),
    }
}

fn choice(file: &str, name: &str) -> ItemEnum {
    match item(file, name) {
        Item::Enum(item) => item,
        _ => panic!("`{name}` in {file} is no enum"),
    }
}

fn item(file: &str, name: &str) -> Item {
    let text = std::fs::read_to_string(root().join(file)).unwrap_or_else(|error| panic!("{file}: {error}"));
    let items = syn::parse_file(&text)
        .unwrap_or_else(|error| panic!("{file}: {error}"))
        .items;
    let found = items.into_iter().find(|item| match item {
        Item::Struct(item) => item.ident == name,
        Item::Enum(item) => item.ident == name,
        _ => false,
    });
    found.unwrap_or_else(|| panic!("{file} has no type `{name}`"))
}

fn keys(fields: Fields, rename: Option<&str>, all_have_defaults: bool) -> Vec<Key> {
    let keys = fields.into_iter().filter_map(|field| {
        let told = Told::of(&field.attrs);
        let ident = field.ident.as_ref()?.unraw().to_string();
        let name = match rename {
            Some("kebab-case") => ident.replace('_', "-"),
            _ => ident,
        };
        (!told.skip).then(|| Key {
            name: told.rename.unwrap_or(name),
            doc: doc(&field.attrs),
            required: !(all_have_defaults || told.default || is_option(&field.ty)),
            ty: field.ty,
        })
    });
    keys.collect()
}

fn is_option(ty: &Type) -> bool {
    matches!(ty, Type::Path(path) if path.path.segments.last().is_some_and(|last| last.ident == "Option"))
}

/// `FedAvgM` as `fed-avg-m`.
fn apart(name: &str, gap: char) -> String {
    let mut text = String::new();
    for (at, c) in name.char_indices() {
        if at > 0 && c.is_ascii_uppercase() {
            text.push(gap);
        }
        text.push(c.to_ascii_lowercase());
    }
    text
}

/// The first paragraph of a doc comment.
fn doc(attributes: &[Attribute]) -> String {
    let lines = attributes.iter().filter_map(|attribute| match &attribute.meta {
        Meta::NameValue(pair) if pair.path.is_ident("doc") => match &pair.value {
            Expr::Lit(ExprLit {
                lit: Lit::Str(line), ..
            }) => Some(line.value().trim().to_owned()),
            _ => None,
        },
        _ => None,
    });
    let first: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
    plain(&first.join(" "))
}

/// Without links to code, which lead nowhere from the page.
fn plain(text: &str) -> String {
    let (mut plain, mut rest) = (String::new(), text);
    while let Some((before, inside)) = rest.split_once('[') {
        plain.push_str(before);
        let (label, after) = inside.split_once(']').unwrap_or((inside, ""));
        match after.strip_prefix('(').and_then(|link| link.split_once(')')) {
            Some((_, after)) => {
                plain.push_str(label);
                rest = after;
            }
            None if label.starts_with('`') => {
                plain.push_str(label);
                rest = after;
            }
            None => {
                plain.push('[');
                rest = inside;
            }
        }
    }
    plain + rest
}

#[test]
fn links_to_code_are_left_out() {
    assert_eq!(
        plain("A [policy](karman_sched::call::Route), as [`Self::run`]."),
        "A policy, as `Self::run`."
    );
    assert_eq!(
        plain("The table `[store]` of `[[link]]`."),
        "The table `[store]` of `[[link]]`."
    );
}
