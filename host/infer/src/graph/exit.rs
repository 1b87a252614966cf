//! A network up to an early exit, as a model of its own.

use super::{CutError, Graph};
use crate::TensorInfo;
use crate::wire::Writer;
use bytes::Bytes;

impl Graph {
    /// The file of the model up to an early exit: nothing but what the output `exit` needs. It takes all that the whole model takes, and
    /// gives one output, under the name of `answer`: who asks need not know which of them answered.
    ///
    /// # Errors
    /// [`CutError::Output`]; [`CutError::Exit`] when the two differ in type or dimensions, or `exit` needs `answer`.
    pub fn up_to(&self, exit: &str, answer: &str) -> Result<Bytes, CutError> {
        let (early, last) = (self.output(exit)?, self.output(answer)?);
        let wrong = |why: String| CutError::Exit {
            exit: exit.to_owned(),
            answer: answer.to_owned(),
            why,
        };
        let nodes = self.needed(&[early])?;
        if let Some(made) = self.edges[last].from
            && nodes.contains(&made)
        {
            return Err(wrong("it needs that one".into()));
        }
        let (early, last) = (&self.edges[early].info, &self.edges[last].info);
        let outputs = [TensorInfo {
            name: answer.to_owned(),
            ..early.clone()
        }];
        if outputs[0] != *last {
            return Err(wrong(format!("it is {early}, and that one is {last}")));
        }
        let mut rename = Writer::default();
        rename
            .bytes(1, exit)
            .bytes(2, answer)
            .bytes(3, answer)
            .bytes(4, "Identity");
        let inputs: Vec<TensorInfo> = self
            .inputs
            .iter()
            .map(|at| self.edges[*at].info.clone())
            .collect();
        let nodes = self.part(0, nodes).nodes;
        Ok(self.file(&nodes, Some(rename), &inputs, &outputs))
    }

    /// The edge of an output.
    ///
    /// # Errors
    /// [`CutError::Output`].
    pub fn output(&self, name: &str) -> Result<usize, CutError> {
        let name_of = |at: usize| self.edges[at].info.name.as_str();
        let found = self.outputs.iter().copied().find(|at| name_of(*at) == name);
        found.ok_or_else(|| {
            let outputs: Vec<&str> = self.outputs.iter().map(|at| name_of(*at)).collect();
            CutError::Output {
                output: name.to_owned(),
                outputs: outputs.join(", "),
            }
        })
    }
}
