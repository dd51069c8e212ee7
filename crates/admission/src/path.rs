//! Where in an object a check stands; rendered only when there is something to say.

/// A path that grows and shrinks with the walk.
#[derive(Clone, Debug, Default)]
pub(crate) struct Path {
    text: String,
}

impl Path {
    /// Runs `visit` one field deeper.
    pub(crate) fn field<R>(&mut self, name: &str, visit: impl FnOnce(&mut Self) -> R) -> R {
        let length = self.text.len();
        if length > 0 {
            self.text.push('.');
        }
        self.text.push_str(name);
        let result = visit(self);
        self.text.truncate(length);
        result
    }

    /// Runs `visit` at entry `index` of a list.
    pub(crate) fn index<R>(&mut self, index: usize, visit: impl FnOnce(&mut Self) -> R) -> R {
        use std::fmt::Write as _;
        let length = self.text.len();
        write!(self.text, "[{index}]").expect("writing to a string cannot fail");
        let result = visit(self);
        self.text.truncate(length);
        result
    }

    /// The path as text; empty at the root.
    pub(crate) fn as_str(&self) -> &str {
        &self.text
    }
}
