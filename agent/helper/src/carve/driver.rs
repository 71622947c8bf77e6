//! Calls of NVIDIA's management library that cut a GPU. Only functions under "Multi Instance GPU Management" in NVIDIA's
//! manual change anything.
#![expect(
    unsafe_code,
    reason = "the library speaks C; each call passes handles of the library and memory of this file, which outlives it"
)]

use std::ffi::{CStr, CString, OsStr, c_char, c_uint};
use std::path::Path;
use std::ptr::null_mut;

use nvml_wrapper_sys::bindings::{self as nvml, NvmlLib};
use sluice_common::carving::{CarveFailure, GpuLayout};
use sluice_common::mig::MigProfile;

use super::place::InstancePlacement;

/// Name by which the dynamic loader finds the library.
const LIBRARY: &str = "libnvidia-ml.so.1";

/// Room for what one query lists: more instances and places than a GPU has.
const ROOM: usize = 32;

/// Second version of a structure, in the top byte.
const VERSION_2: c_uint = 2 << 24;

const SUCCESS: nvml::nvmlReturn_t = nvml::nvmlReturn_enum_NVML_SUCCESS;

/// The opened library. It is never closed, because this process ends soon.
pub(super) struct Driver {
    library: NvmlLib,
}

/// A GPU by handle. A change of its mode may replace the handle.
pub(super) struct MigGpu<'d> {
    driver: &'d Driver,
    uuid: CString,
    handle: nvml::nvmlDevice_t,
}

/// A profile that a GPU offers.
#[derive(Clone, Debug)]
pub(super) struct GpuProfile {
    pub(super) name: String,
    id: c_uint,
    pub(super) slices: c_uint,
}

/// An instance, and the profile of it.
struct Instance {
    profile: GpuProfile,
    handle: nvml::nvmlGpuInstance_t,
}

/// Calls a function of the library; a missing one is a failure.
macro_rules! call {
    ($driver:expr, $name:ident($($argument:expr),*)) => {{
        let driver: &Driver = $driver;
        match &driver.library.$name {
            // SAFETY: see the head of this file.
            Ok(function) => driver.checked(stringify!($name), unsafe { function($($argument),*) }),
            Err(_) => Err(CarveFailure::Refused(format!(
                "the driver lacks {}: install driver 525 or later",
                stringify!($name)
            ))),
        }
    }};
}

impl Driver {
    /// Opens the library. `path` replaces the loader's choice.
    pub(super) fn open(path: Option<&Path>) -> Result<Self, CarveFailure> {
        let path = path.map_or(OsStr::new(LIBRARY), Path::as_os_str);
        let shown = path.to_string_lossy();
        // SAFETY: the code that runs at loading is NVIDIA's, or what the config of root names.
        let library = unsafe { NvmlLib::new(path) };
        let library = library.map_err(|e| {
            CarveFailure::Refused(format!(
                "{shown} cannot be opened ({e}): install the driver"
            ))
        })?;
        let driver = Self { library };
        call!(&driver, nvmlInit_v2())?;
        Ok(driver)
    }

    /// Finds a GPU that the driver lists.
    pub(super) fn gpu(&self, uuid: &str) -> Result<MigGpu<'_>, CarveFailure> {
        let uuid = CString::new(uuid).map_err(|e| CarveFailure::Refused(e.to_string()))?;
        let handle = self.handle(&uuid)?;
        Ok(MigGpu {
            driver: self,
            uuid,
            handle,
        })
    }

    fn handle(&self, uuid: &CStr) -> Result<nvml::nvmlDevice_t, CarveFailure> {
        let mut handle = null_mut();
        call!(
            self,
            nvmlDeviceGetHandleByUUID(uuid.as_ptr(), &raw mut handle)
        )?;
        Ok(handle)
    }

    fn checked(&self, name: &str, code: nvml::nvmlReturn_t) -> Result<(), CarveFailure> {
        match code {
            SUCCESS => Ok(()),
            nvml::nvmlReturn_enum_NVML_ERROR_IN_USE => {
                Err(CarveFailure::InUse("a program, by the driver".to_owned()))
            }
            nvml::nvmlReturn_enum_NVML_ERROR_RESET_REQUIRED => Err(CarveFailure::NeedsReset),
            nvml::nvmlReturn_enum_NVML_ERROR_INSUFFICIENT_RESOURCES => Err(CarveFailure::NoRoom),
            code => Err(CarveFailure::Refused(format!(
                "the driver refuses {name} ({})",
                self.error_text(code)
            ))),
        }
    }

    fn error_text(&self, code: nvml::nvmlReturn_t) -> String {
        let Ok(ask) = &self.library.nvmlErrorString else {
            return format!("error {code}");
        };
        // SAFETY: see the head of this file.
        let text = unsafe { ask(code) };
        if text.is_null() {
            return format!("error {code}");
        }
        // SAFETY: the text is a constant of the library.
        unsafe { CStr::from_ptr(text) }
            .to_string_lossy()
            .into_owned()
    }
}

impl MigGpu<'_> {
    /// The layout; `None` if an instance has no compute instance, or several.
    pub(super) fn layout(&self) -> Result<Option<GpuLayout>, CarveFailure> {
        if !self.is_cut()? {
            return Ok(Some(GpuLayout::Whole));
        }
        let mut profiles = Vec::new();
        for instance in self.instances()? {
            let whole = self.whole_compute_profile(instance.handle)?;
            if self.compute_instances(instance.handle, whole)?.len() != 1 {
                return Ok(None);
            }
            profiles.push(MigProfile::detected(&instance.profile.name));
        }
        Ok(Some(GpuLayout::slices(profiles)))
    }

    /// Fails if an attempt has the GPU or an instance of it, or a process uses it.
    pub(super) fn check_unused(&self, held: &[String]) -> Result<(), CarveFailure> {
        let own = self.uuid.to_string_lossy().into_owned();
        let units = std::iter::once(own).chain(self.mig_devices());
        if let Some(unit) = units.into_iter().find(|unit| held.contains(unit)) {
            return Err(CarveFailure::InUse(format!(
                "an attempt, which has `{unit}`"
            )));
        }
        let ask = &self.driver.library.nvmlDeviceGetComputeRunningProcesses_v3;
        let Ok(ask) = ask else {
            return Ok(());
        };
        let mut count = 0;
        // SAFETY: see the head of this file. Without room the library tells only the count.
        let code = unsafe { ask(self.handle, &raw mut count, null_mut()) };
        match code {
            nvml::nvmlReturn_enum_NVML_ERROR_INSUFFICIENT_SIZE => {
                Err(CarveFailure::InUse(format!("{count} processes")))
            }
            // A driver that does not tell refuses to cut a GPU in use.
            _ => Ok(()),
        }
    }

    /// UUIDs of its MIG devices. One that does not tell is left out.
    fn mig_devices(&self) -> Vec<String> {
        let uuid = |place| -> Result<String, CarveFailure> {
            let mut device = null_mut();
            call!(
                self.driver,
                nvmlDeviceGetMigDeviceHandleByIndex(self.handle, place, &raw mut device)
            )?;
            let mut text: [c_char; 96] = [0; 96];
            let room = text.len() as c_uint;
            call!(
                self.driver,
                nvmlDeviceGetUUID(device, text.as_mut_ptr(), room)
            )?;
            Ok(text_of(&text))
        };
        let places = 0..ROOM as c_uint;
        places.filter_map(|place| uuid(place).ok()).collect()
    }

    fn is_cut(&self) -> Result<bool, CarveFailure> {
        Ok(self.modes()?.0)
    }

    /// Whether MIG is on now, and after the next reset.
    fn modes(&self) -> Result<(bool, bool), CarveFailure> {
        let (mut now, mut later) = (0, 0);
        call!(
            self.driver,
            nvmlDeviceGetMigMode(self.handle, &raw mut now, &raw mut later)
        )?;
        let is_on = |mode| mode == nvml::NVML_DEVICE_MIG_ENABLE;
        Ok((is_on(now), is_on(later)))
    }

    /// Whether the mode changes at the next reset.
    pub(super) fn is_mode_pending(&self) -> Result<bool, CarveFailure> {
        let (now, later) = self.modes()?;
        Ok(now != later)
    }

    /// Switches MIG on or off.
    pub(super) fn set_mode(&mut self, on: bool) -> Result<(), CarveFailure> {
        if self.modes()? == (on, on) {
            return Ok(());
        }
        let mut activation = SUCCESS;
        let mode = c_uint::from(on);
        call!(
            self.driver,
            nvmlDeviceSetMigMode(self.handle, mode, &raw mut activation)
        )?;
        self.driver.checked("the new MIG mode", activation)?;
        self.handle = self.driver.handle(&self.uuid)?;
        match self.is_cut()? == on {
            true => Ok(()),
            false => Err(CarveFailure::NeedsReset),
        }
    }

    /// Profiles that the GPU offers.
    pub(super) fn profiles(&self) -> Result<Vec<GpuProfile>, CarveFailure> {
        let mut profiles = Vec::new();
        for number in 0..nvml::NVML_GPU_INSTANCE_PROFILE_COUNT {
            // SAFETY: the structure holds only numbers, for which zero is a value.
            let mut info: nvml::nvmlGpuInstanceProfileInfo_v2_t = unsafe { std::mem::zeroed() };
            info.version = size_of_val(&info) as c_uint | VERSION_2;
            let told = call!(
                self.driver,
                nvmlDeviceGetGpuInstanceProfileInfoV(self.handle, number, &raw mut info)
            );
            // The model has no profile of this number, or the driver does not know the number.
            if told.is_ok() {
                let name = text_of(&info.name);
                profiles.push(GpuProfile {
                    name: name.trim_start_matches("MIG ").to_owned(),
                    id: info.id,
                    slices: info.sliceCount,
                });
            }
        }
        Ok(profiles)
    }

    fn instances(&self) -> Result<Vec<Instance>, CarveFailure> {
        let mut found = Vec::new();
        for profile in self.profiles()? {
            let mut handles = [null_mut(); ROOM];
            let mut count = ROOM as c_uint;
            call!(
                self.driver,
                nvmlDeviceGetGpuInstances(
                    self.handle,
                    profile.id,
                    handles.as_mut_ptr(),
                    &raw mut count
                )
            )?;
            let handles = handles.iter().take(count as usize);
            found.extend(handles.map(|handle| Instance {
                profile: profile.clone(),
                handle: *handle,
            }));
        }
        Ok(found)
    }

    /// Ids of the compute profiles of an instance, each with its slices.
    fn compute_profiles(&self, instance: nvml::nvmlGpuInstance_t) -> Vec<(c_uint, c_uint)> {
        let of_number = |number| {
            // SAFETY: the structure holds only numbers, for which zero is a value.
            let mut info: nvml::nvmlComputeInstanceProfileInfo_t = unsafe { std::mem::zeroed() };
            let engine = nvml::NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED;
            let told = call!(
                self.driver,
                nvmlGpuInstanceGetComputeInstanceProfileInfo(
                    instance,
                    number,
                    engine,
                    &raw mut info
                )
            );
            told.ok().map(|()| (info.id, info.sliceCount))
        };
        let numbers = 0..nvml::NVML_COMPUTE_INSTANCE_PROFILE_COUNT;
        numbers.filter_map(of_number).collect()
    }

    /// The compute profile that takes all of an instance.
    fn whole_compute_profile(
        &self,
        instance: nvml::nvmlGpuInstance_t,
    ) -> Result<c_uint, CarveFailure> {
        let profiles = self.compute_profiles(instance).into_iter();
        // The first of equals: the last of the largest are of later models.
        let largest = profiles.rev().max_by_key(|(_, slices)| *slices);
        let largest = largest.map(|(id, _)| id);
        largest.ok_or_else(|| {
            CarveFailure::Refused("the driver offers no compute instance".to_owned())
        })
    }

    fn compute_instances(
        &self,
        instance: nvml::nvmlGpuInstance_t,
        profile: c_uint,
    ) -> Result<Vec<nvml::nvmlComputeInstance_t>, CarveFailure> {
        let mut handles = [null_mut(); ROOM];
        let mut count = ROOM as c_uint;
        call!(
            self.driver,
            nvmlGpuInstanceGetComputeInstances(
                instance,
                profile,
                handles.as_mut_ptr(),
                &raw mut count
            )
        )?;
        Ok(handles.iter().take(count as usize).copied().collect())
    }

    /// Destroys all instances, if MIG is on.
    pub(super) fn destroy_instances(&self) -> Result<(), CarveFailure> {
        if !self.is_cut()? {
            return Ok(());
        }
        for instance in self.instances()? {
            for (profile, _) in self.compute_profiles(instance.handle) {
                for compute in self.compute_instances(instance.handle, profile)? {
                    call!(self.driver, nvmlComputeInstanceDestroy(compute))?;
                }
            }
            call!(self.driver, nvmlGpuInstanceDestroy(instance.handle))?;
        }
        Ok(())
    }

    /// Places that an instance of a profile can have on an empty GPU.
    pub(super) fn places(
        &self,
        profile: &GpuProfile,
    ) -> Result<Vec<InstancePlacement>, CarveFailure> {
        let none = nvml::nvmlGpuInstancePlacement_t { start: 0, size: 0 };
        let mut places = [none; ROOM];
        let mut count = ROOM as c_uint;
        call!(
            self.driver,
            nvmlDeviceGetGpuInstancePossiblePlacements_v2(
                self.handle,
                profile.id,
                places.as_mut_ptr(),
                &raw mut count
            )
        )?;
        let places = places.iter().take(count as usize);
        let place = |it: &nvml::nvmlGpuInstancePlacement_t| InstancePlacement {
            start: it.start,
            size: it.size,
        };
        Ok(places.map(place).collect())
    }

    /// Makes an instance, and in it a compute instance that takes all of it.
    pub(super) fn create(
        &self,
        profile: &GpuProfile,
        place: InstancePlacement,
    ) -> Result<(), CarveFailure> {
        let place = nvml::nvmlGpuInstancePlacement_t {
            start: place.start,
            size: place.size,
        };
        let mut instance = null_mut();
        call!(
            self.driver,
            nvmlDeviceCreateGpuInstanceWithPlacement(
                self.handle,
                profile.id,
                &raw const place,
                &raw mut instance
            )
        )?;
        let whole = self.whole_compute_profile(instance)?;
        let mut compute = null_mut();
        call!(
            self.driver,
            nvmlGpuInstanceCreateComputeInstance(instance, whole, &raw mut compute)
        )
    }
}

/// A text of the library, up to its NUL.
fn text_of(text: &[c_char]) -> String {
    let bytes = text.iter().take_while(|c| **c != 0);
    let bytes: Vec<u8> = bytes.map(|c| c.cast_unsigned()).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}
