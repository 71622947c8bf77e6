//! Resolves handles on the present host: a GPU, or one of its MIG devices.

use std::sync::Arc;

use nvml_wrapper_sys::bindings as nvml;

use crate::exports::trouble;
use crate::host::{Gpu, Host};
use crate::mig::MigInstance;
use crate::model::Model;
use crate::{Code, INVALID_ARGUMENT, NOT_SUPPORTED, NvmlResult, handle};

const GPU_IS_LOST: Code = nvml::nvmlReturn_enum_NVML_ERROR_GPU_IS_LOST;

/// A GPU or a MIG device.
#[derive(Clone)]
pub(crate) struct Device {
    pub(crate) host: Arc<Host>,
    /// Index of the GPU.
    pub(crate) index: usize,
    /// Index of the MIG device, if it is one.
    pub(crate) mig: Option<usize>,
}

impl Device {
    /// Resolves a handle. A GPU that is no longer in the file has fallen off the bus; a MIG device was destroyed, and
    /// its handle is invalid.
    pub(crate) fn of(host: Arc<Host>, handle: nvml::nvmlDevice_t) -> Result<Self, Code> {
        let uuid = handle::uuid(handle).ok_or(INVALID_ARGUMENT)?;
        let absent = match uuid.starts_with("MIG-") {
            true => INVALID_ARGUMENT,
            false => GPU_IS_LOST,
        };
        Self::all(&host)
            .find(|device| device.uuid() == uuid)
            .ok_or(absent)
    }

    /// Lists every GPU, each followed by its MIG devices.
    pub(crate) fn all(host: &Arc<Host>) -> impl Iterator<Item = Self> {
        let of_gpu = move |index: usize| {
            let devices = host.gpus[index].mig.as_ref().map_or(0, Vec::len);
            std::iter::once(None)
                .chain((0..devices).map(Some))
                .map(move |mig| Self {
                    host: Arc::clone(host),
                    index,
                    mig,
                })
        };
        (0..host.gpus.len()).flat_map(of_gpu)
    }

    /// Lists every GPU.
    pub(crate) fn gpus(host: &Arc<Host>) -> impl Iterator<Item = Self> {
        Self::all(host).filter(|device| device.mig.is_none())
    }

    /// Returns the GPU that it is or belongs to.
    pub(crate) fn gpu(&self) -> &Gpu {
        &self.host.gpus[self.index]
    }

    /// Returns the data of that GPU's model.
    pub(crate) fn model(&self) -> &'static Model {
        self.gpu().model()
    }

    /// Returns the MIG device that it is.
    pub(crate) fn instance(&self) -> Option<&MigInstance> {
        self.gpu().mig.as_ref()?.get(self.mig?)
    }

    /// Returns its own UUID.
    pub(crate) fn uuid(&self) -> &str {
        self.instance()
            .map_or(&self.gpu().uuid, |instance| &instance.uuid)
    }

    /// Returns its handle.
    pub(crate) fn handle(&self) -> nvml::nvmlDevice_t {
        handle::of(self.uuid())
    }

    /// Resolves the second handle of a call.
    pub(crate) fn other(&self, handle: nvml::nvmlDevice_t) -> Result<Self, Code> {
        let other = Self::of(Arc::clone(&self.host), handle)?;
        other.is_there().map(|()| other)
    }

    /// Applies the GPU's faults to a call.
    pub(crate) fn gate(&self, name: &str) -> NvmlResult {
        self.is_there()?;
        trouble(&self.gpu().slow_ms, &self.gpu().errors, name)
    }

    fn is_there(&self) -> NvmlResult {
        match self.gpu().lost {
            true => Err(GPU_IS_LOST),
            false => Ok(()),
        }
    }

    /// Fails for MIG devices.
    pub(crate) fn is_whole(&self) -> NvmlResult {
        match self.mig {
            Some(_) => Err(NOT_SUPPORTED),
            None => Ok(()),
        }
    }
}
