//! From a descriptor chain to a checked request: everything the guest controls is copied once,
//! then checked, then used.

use crate::abi::{MAX_CONTROL, MAX_NAME, MAX_SEGMENTS, Request, Response};
use crate::memory::{Memory, Segments};
use crate::system::Name;
use rustix::io::Errno;
use smallvec::SmallVec;
use std::mem::size_of;
use virtio_queue::DescriptorChain;
use zerocopy::{FromBytes, IntoBytes};

/// Control messages on the host.
pub type Control = SmallVec<[u8; 256]>;

/// A request whose every length holds, and where its answer goes.
pub struct Exchange<'m> {
    /// The head, copied: the guest cannot change it any more.
    pub request: Request,
    name: Segments<'m>,
    control: Segments<'m>,
    /// Payload to read.
    pub data: Segments<'m>,
    /// Room for a name.
    pub name_room: Segments<'m>,
    /// Room for control messages.
    pub control_room: Segments<'m>,
    /// Room for payload.
    pub data_room: Segments<'m>,
}

/// The place of the answer's head, where the chain has one, and the request or what is wrong.
pub struct Opened<'m> {
    /// Where the answer's head goes.
    pub response: Option<Segments<'m>>,
    /// EPROTO: the parts do not fit the chain. EFAULT: not guest memory. EMSGSIZE: a limit.
    pub exchange: Result<Exchange<'m>, Errno>,
}

/// Reads a chain: readable descriptors, then writable ones, each visited once.
pub fn open<'m>(
    memory: &'m Memory,
    chain: DescriptorChain<&'m Memory>,
    max_data: u32,
) -> Opened<'m> {
    let mut readable = Segments::default();
    let mut writable = Segments::default();
    let walked = walk(memory, chain, &mut readable, &mut writable);
    let response = writable.take(size_of::<Response>()).ok();
    let exchange = walked.and_then(|()| {
        if response.is_none() {
            return Err(Errno::PROTO);
        }
        divide(readable, writable, max_data)
    });
    Opened { response, exchange }
}

fn walk<'m>(
    memory: &'m Memory,
    chain: DescriptorChain<&'m Memory>,
    readable: &mut Segments<'m>,
    writable: &mut Segments<'m>,
) -> Result<(), Errno> {
    let mut goes_on = true;
    for (index, descriptor) in chain.enumerate() {
        if index == MAX_SEGMENTS {
            return Err(Errno::MSGSIZE);
        }
        goes_on = descriptor.has_next();
        let (address, len) = (descriptor.addr(), descriptor.len());
        if descriptor.is_write_only() {
            writable.push(memory, address, len)?;
        } else if writable.count() > 0 {
            return Err(Errno::PROTO);
        } else {
            readable.push(memory, address, len)?;
        }
    }
    // The iterator ends without a word where a chain is broken.
    if goes_on { Err(Errno::PROTO) } else { Ok(()) }
}

fn divide<'m>(
    mut readable: Segments<'m>,
    mut writable: Segments<'m>,
    max_data: u32,
) -> Result<Exchange<'m>, Errno> {
    let mut head = [0; size_of::<Request>()];
    readable.take(head.len())?.read(&mut head);
    let request = Request::read_from_bytes(&head).map_err(|_| Errno::PROTO)?;
    if request.reserved0.get() != 0 || request.reserved1.get() != 0 {
        return Err(Errno::PROTO);
    }
    let names = [request.name_len, request.name_room];
    let controls = [request.control_len, request.control_room];
    let data = [request.data_len, request.data_room];
    if names.iter().any(|len| len.get() as usize > MAX_NAME)
        || controls.iter().any(|len| len.get() as usize > MAX_CONTROL)
        || data.iter().any(|len| len.get() > max_data)
    {
        return Err(Errno::MSGSIZE);
    }
    let exchange = Exchange {
        request,
        name: readable.take(request.name_len.get() as usize)?,
        control: readable.take(request.control_len.get() as usize)?,
        data: readable.take(request.data_len.get() as usize)?,
        name_room: writable.take(request.name_room.get() as usize)?,
        control_room: writable.take(request.control_room.get() as usize)?,
        data_room: writable.take(request.data_room.get() as usize)?,
    };
    if readable.len() + writable.len() > 0 {
        return Err(Errno::PROTO);
    }
    Ok(exchange)
}

impl Exchange<'_> {
    /// Argument `index` as it was sent.
    pub fn argument(&self, index: usize) -> u64 {
        self.request.argument[index].get()
    }

    /// Argument `index` as a C int, sign-extended or not.
    ///
    /// # Errors
    /// EINVAL where it is neither.
    pub fn int(&self, index: usize) -> Result<i32, Errno> {
        let argument = self.argument(index);
        i32::try_from(argument as i64)
            .or_else(|_| u32::try_from(argument).map(|unsigned| unsigned as i32))
            .map_err(|_| Errno::INVAL)
    }

    /// The name, copied.
    pub fn name(&self) -> Result<Name, Errno> {
        let mut name = Name::of_len(self.name.len())?;
        self.name.read(name.bytes_mut());
        Ok(name)
    }

    /// The name, copied, or none where the request has none.
    pub fn optional_name(&self) -> Result<Option<Name>, Errno> {
        (self.name.len() > 0).then(|| self.name()).transpose()
    }

    /// The control messages, copied.
    pub fn control(&self) -> Control {
        let mut control = Control::from_elem(0, self.control.len());
        self.control.read(&mut control);
        control
    }

    /// The data, copied, where at most `limit` bytes make sense.
    pub fn small_data(&self, limit: usize) -> Result<Control, Errno> {
        let len = self.data.len();
        if len > limit {
            return Err(Errno::INVAL);
        }
        let mut bytes = Control::from_elem(0, len);
        self.data.read(&mut bytes);
        Ok(bytes)
    }
}

/// Writes the answer's head.
pub fn answer(place: &Segments, response: &Response) -> u32 {
    place.write(response.as_bytes()) as u32
}
