use crate::Malformed;
use std::ops::Range;
use wasmparser::{Chunk, ComponentExportSectionReader, ComponentImportSectionReader, Parser, Payload};

/// The custom section that holds the manifest.
pub(crate) const MANIFEST: &str = "karman:manifest";
/// The custom section that names the publisher.
pub(crate) const PUBLISHER: &str = "karman:publisher";
/// The custom section that holds the signature; its name is given by the WebAssembly tool conventions.
pub(crate) const SIGNATURE: &str = "signature";

/// Bytes before the first section: the magic number, the version and the layer.
pub(crate) const HEADER: usize = 8;

/// A section of the top level.
pub(crate) struct Section<'a> {
    /// All of it: id, length and content.
    pub(crate) range: Range<usize>,
    pub(crate) content: Content<'a>,
}

/// What of a section matters here.
pub(crate) enum Content<'a> {
    Custom { name: &'a str, data: &'a [u8] },
    Imports(ComponentImportSectionReader<'a>),
    Exports(ComponentExportSectionReader<'a>),
    Other,
}

/// The sections of the top level in order; what is nested in them is stepped over unread.
pub(crate) struct Sections<'a> {
    bytes: &'a [u8],
    parser: Parser,
    at: usize,
    done: bool,
}

impl<'a> Sections<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self {
            bytes,
            parser: Parser::new(0),
            at: 0,
            done: false,
        }
    }

    fn step(&mut self) -> Result<Option<Section<'a>>, Malformed> {
        loop {
            let start = self.at;
            let chunk = self.parser.parse(&self.bytes[start..], true)?;
            let Chunk::Parsed { consumed, payload } = chunk else {
                return Err(Malformed::at(start, "the file ends within a section"));
            };
            self.at += consumed;
            let content = match payload {
                Payload::Version { .. } => continue,
                Payload::End(_) => return Ok(None),
                Payload::ModuleSection { unchecked_range, .. }
                | Payload::ComponentSection { unchecked_range, .. } => {
                    if unchecked_range.end > self.bytes.len() {
                        return Err(Malformed::at(start, "the file ends within a nested module"));
                    }
                    self.at = unchecked_range.end;
                    Content::Other
                }
                Payload::CustomSection(custom) => Content::Custom {
                    name: custom.name(),
                    data: custom.data(),
                },
                Payload::ComponentImportSection(imports) => Content::Imports(imports),
                Payload::ComponentExportSection(exports) => Content::Exports(exports),
                _ => Content::Other,
            };
            return Ok(Some(Section {
                range: start..self.at,
                content,
            }));
        }
    }
}

impl<'a> Iterator for Sections<'a> {
    type Item = Result<Section<'a>, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.done {
            return None;
        }
        let step = self.step().transpose();
        self.done = !matches!(step, Some(Ok(_)));
        step
    }
}

/// The same component without the custom sections of these names.
pub(crate) fn without(component: &[u8], names: &[&str]) -> Result<Vec<u8>, Malformed> {
    let mut rest = Vec::with_capacity(component.len());
    rest.extend_from_slice(&component[..HEADER.min(component.len())]);
    for section in Sections::new(component) {
        let section = section?;
        match section.content {
            Content::Custom { name, .. } if names.contains(&name) => {}
            _ => rest.extend_from_slice(&component[section.range]),
        }
    }
    Ok(rest)
}

/// Adds a custom section at the end.
pub(crate) fn append(component: &mut Vec<u8>, name: &str, data: &[u8]) {
    use wasm_encoder::ComponentSection;
    wasm_encoder::CustomSection {
        name: name.into(),
        data: data.into(),
    }
    .append_to_component(component);
}
