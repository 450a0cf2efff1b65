//! A file beside the owner's: VMs alone. What the host is, and what classes there are, the owner says.

use toml::de::DeValue;

use crate::schema::vm::Vm;
use crate::source::Source;
use crate::{Error, Placed};

/// The VMs of such a file.
#[derive(Debug, Clone, Default, PartialEq, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DropIn {
    /// In the order of the file.
    #[serde(default)]
    pub vm: Vec<Placed<Vm>>,
}

impl DropIn {
    /// Reads one. `name` is what messages call it.
    ///
    /// # Errors
    /// What is wrong with its form, and where.
    pub fn parse(name: &str, text: &str) -> Result<Self, Error> {
        let source = Source::new(name, text);
        let tables = source.tables()?;
        let other = tables.get_ref().iter().find(|(key, value)| {
            key.get_ref() != "vm" || !matches!(value.get_ref(), DeValue::Array(_))
        });
        if let Some((key, _)) = other {
            let message = format!(
                "this file has \"{}\"; files in this directory may only have [[vm]] tables; move it into the file that \
                 describes this host",
                key.get_ref()
            );
            return Err(Error::new(source.place(key.span().start), message));
        }
        source.read(tables)
    }

    /// The names of its VMs.
    pub fn vm_names(&self) -> impl Iterator<Item = &str> {
        self.vm.iter().filter_map(|vm| vm.name.as_deref())
    }
}
