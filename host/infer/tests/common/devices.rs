//! What models answer on devices, held against tract.

use super::onnx::initializer;
use karman_gpu::{Cpu, Device, Wgpu};
use karman_infer::{Backend, DeviceModel, InferError, LoadOptions, ModelLimits, Named, Tract};
use karman_tensor::{Shape, Tensor};
use karman_types::ByteSize;
use std::time::Duration;

pub const MOST: Duration = Duration::from_secs(120);

/// The processor, and the first Vulkan device where there is one.
pub fn devices() -> Vec<Box<dyn Device>> {
    let mut devices: Vec<Box<dyn Device>> = vec![Box::new(Cpu::new(1)), Box::new(Cpu::new(2))];
    match Wgpu::open("vulkan-0", None) {
        Ok(device) => devices.push(Box::new(device)),
        Err(error) => eprintln!("skipped on GPUs: {error}"),
    }
    devices
}

pub fn read(file: &[u8]) -> Result<DeviceModel, InferError> {
    DeviceModel::read(file.to_vec(), &ModelLimits::default(), ByteSize::gib(1))
}

/// Numbers from 0 to 1.
pub fn drawn(dims: &[u32], seed: u64) -> Tensor {
    let mut rng = fastrand::Rng::with_seed(seed);
    let elements: u32 = dims.iter().product();
    let numbers: Vec<f32> = (0..elements).map(|_| rng.f32()).collect();
    Tensor::from_slice(Shape::new(dims).unwrap(), &numbers).unwrap()
}

/// Runs a model on tract and on every device; outputs differ by no more than this times the largest of them.
pub fn agrees(devices: &mut [Box<dyn Device>], file: &[u8], input: &str, images: &[Tensor], most: f32) {
    let images = images.iter().map(|image| vec![(input.to_owned(), image.clone())]);
    agrees_on(devices, file, &images.collect::<Vec<_>>(), most);
}

/// The same for models of several inputs.
pub fn agrees_on(devices: &mut [Box<dyn Device>], file: &[u8], inputs: &[Named], most: f32) {
    let tract = Tract.load(file, &LoadOptions::default()).unwrap();
    let model = read(file).unwrap();
    assert_eq!(model.inputs(), tract.inputs());
    assert_eq!(model.outputs(), tract.outputs());
    for given in inputs {
        let expected = tract.run(given.clone()).unwrap();
        for device in devices.iter_mut() {
            let got = model.run(&mut **device, given.clone(), MOST).unwrap();
            let name = &device.info().name;
            assert_eq!(got.len(), expected.len());
            for ((output, got), (wanted, expected)) in got.iter().zip(&expected) {
                assert_eq!((output, got.shape()), (wanted, expected.shape()));
                let (got, expected) = (got.view::<f32>().unwrap(), expected.view::<f32>().unwrap());
                let size = expected
                    .iter()
                    .fold(0.0, |most: f32, number| most.max(number.abs()));
                let mut both = got.iter().zip(expected);
                let off = both.find(|(got, expected)| {
                    // What is no number does not hold either.
                    let holds = (*got - *expected).abs() <= most * size;
                    !holds
                });
                assert_eq!(off, None, "{output} on {name}, where the largest is {size}");
            }
        }
    }
}

/// A constant of drawn numbers around 0, as those of a trained network lie.
pub fn trained(name: &str, dims: &[u32], seed: u64) -> Vec<u8> {
    let sizes: Vec<i64> = dims.iter().map(|dim| i64::from(*dim)).collect();
    let numbers = drawn(dims, seed);
    let numbers = numbers.view::<f32>().unwrap().iter().map(|number| number - 0.5);
    let raw: Vec<u8> = numbers.flat_map(f32::to_le_bytes).collect();
    initializer(name, 1, &sizes, &raw)
}

/// A constant of drawn numbers.
pub fn weights(name: &str, dims: &[u32], seed: u64) -> Vec<u8> {
    let sizes: Vec<i64> = dims.iter().map(|dim| i64::from(*dim)).collect();
    initializer(name, 1, &sizes, drawn(dims, seed).bytes())
}
