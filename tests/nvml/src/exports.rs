//! How a C function is written here: the macro that exports one, and the gate that each call passes, where faults are.

use std::sync::Arc;
use std::thread::sleep;
use std::time::Duration;

use nvml_wrapper_sys::bindings as nvml;

use crate::host::Host;
use crate::resolve::Device;
use crate::{Code, NvmlResult, SUCCESS};

/// Exports C functions that answer with a code. Each says who is asked: the `host`; a `gpu`, where a MIG device's
/// handle is refused as the real library does; or a `unit`, which is a GPU or a MIG device.
/// `NAMES` collects the names, which host files may use in faults.
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

/// The names of all functions that a fault may be put on.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    let lists = [
        crate::board::NAMES,
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

/// A question to the host.
pub(crate) fn host(name: &str, answer: impl FnOnce(&Arc<Host>) -> NvmlResult) -> Code {
    code(Host::now().and_then(|host| {
        gate(&host, name)?;
        answer(&host)
    }))
}

/// A question to a GPU or a MIG device.
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

/// A question that only a whole GPU answers.
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

/// What the host's faults do to a call: the driver is gone, the function is absent, slow or refused.
pub(crate) fn gate(host: &Host, name: &str) -> NvmlResult {
    if let Some(gone) = host.gone {
        return Err(gone.code());
    }
    if host.absent.iter().any(|absent| absent == name) {
        return Err(nvml::nvmlReturn_enum_NVML_ERROR_FUNCTION_NOT_FOUND);
    }
    trouble(&host.slow_ms, &host.errors, name)
}

/// A delay and an error, where the file has them for this function.
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

/// The code of a call that may fail half-way.
pub(crate) fn code(result: NvmlResult) -> Code {
    result.err().unwrap_or(SUCCESS)
}
