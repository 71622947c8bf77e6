//! The macro that exports C functions, and the injection of faults into each call.

use std::sync::Arc;
use std::thread::sleep;
use std::time::Duration;

use nvml_wrapper_sys::bindings as nvml;

use crate::host::Host;
use crate::resolve::Device;
use crate::{Code, NvmlResult, SUCCESS};

/// Exports C functions that return a code. Each names its target: the `host`; a `gpu`, for which a MIG device's handle
/// is refused as the real library does; or a `unit`, which is a GPU or a MIG device. `NAMES` collects the names, which
/// host files use in faults.
macro_rules! exports {
    ($(
        $who:ident fn $name:ident($([$device:ident])? $($arg:ident: $type:ty),* $(,)?) |$subject:pat_param| $body:expr;
    )*) => {
        pub(crate) const NAMES: &[&str] = &[$(stringify!($name)),*];
        $(
            #[doc = concat!("`", stringify!($name), "`, as NVIDIA documents it.")]
            #[unsafe(no_mangle)]
            pub extern "C" fn $name(
                $($device: nvml_wrapper_sys::bindings::nvmlDevice_t,)?
                $($arg: $type),*
            ) -> $crate::Code {
                $crate::exports::$who(stringify!($name), $($device,)? |$subject| $body)
            }
        )*
    };
}
pub(crate) use exports;

/// Lists all functions that can have a fault.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    let lists = [
        crate::board::NAMES,
        crate::carve::NAMES,
        crate::device::NAMES,
        crate::event::NAMES,
        crate::health::NAMES,
        crate::link::NAMES,
        crate::load::NAMES,
        crate::memory::NAMES,
        crate::mig::NAMES,
        crate::pci::NAMES,
        crate::topology::NAMES,
        crate::process::NAMES,
        crate::system::NAMES,
        crate::system::INIT_NAMES,
    ];
    lists.into_iter().flatten().copied()
}

/// Handles a call on the host.
pub(crate) fn host(name: &str, answer: impl FnOnce(&Arc<Host>) -> NvmlResult) -> Code {
    code(Host::now().and_then(|host| {
        gate(&host, name)?;
        answer(&host)
    }))
}

/// Handles a call on a GPU or a MIG device.
pub(crate) fn unit(
    name: &str,
    handle: nvml::nvmlDevice_t,
    answer: impl FnOnce(&Device) -> NvmlResult,
) -> Code {
    code(Host::now().and_then(|host| {
        gate(&host, name)?;
        let device = Device::of(host, handle)?;
        device.gate(name)?;
        answer(&device)
    }))
}

/// Handles a call on a whole GPU.
pub(crate) fn gpu(
    name: &str,
    handle: nvml::nvmlDevice_t,
    answer: impl FnOnce(&Device) -> NvmlResult,
) -> Code {
    unit(name, handle, |device| {
        device.is_whole()?;
        answer(device)
    })
}

/// Applies the host's faults to a call: the driver is gone, the function is absent, slow or refused.
pub(crate) fn gate(host: &Host, name: &str) -> NvmlResult {
    if let Some(gone) = host.gone {
        return Err(gone.code());
    }
    if host.absent.iter().any(|absent| absent == name) {
        return Err(nvml::nvmlReturn_enum_NVML_ERROR_FUNCTION_NOT_FOUND);
    }
    if host.crashes.iter().any(|crash| crash == name) {
        std::process::abort();
    }
    trouble(&host.slow_ms, &host.errors, name)
}

/// Applies a delay and an error that the file has for this function.
pub(crate) fn trouble(
    slow_ms: &crate::fault::Delays,
    errors: &crate::fault::InjectedErrors,
    name: &str,
) -> NvmlResult {
    if let Some(delay) = slow_ms.get(name) {
        sleep(Duration::from_millis(*delay));
    }
    errors.get(name).map_or(Ok(()), |error| Err(error.code()))
}

/// Returns the code of a call that may fail half-way.
pub(crate) fn code(result: NvmlResult) -> Code {
    result.err().unwrap_or(SUCCESS)
}
