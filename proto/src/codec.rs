//! The codec of the generated clients and servers. It differs from `tonic_prost`'s in one thing: the status of a
//! message that cannot be decoded keeps prost's error as its source, and not as text alone.

use std::marker::PhantomData;
use std::sync::Arc;

use prost::Message;
use tonic::Status;
use tonic::codec::{Codec, DecodeBuf, Decoder};
use tonic_prost::ProstEncoder;

/// Sends `Q`, receives `A`.
#[derive(Debug)]
pub(crate) struct MessageCodec<Q, A>(PhantomData<fn(Q) -> A>);

impl<Q, A> Default for MessageCodec<Q, A> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<Q, A> Codec for MessageCodec<Q, A>
where
    Q: Message + 'static,
    A: Message + Default + 'static,
{
    type Encode = Q;
    type Decode = A;
    type Encoder = ProstEncoder<Q>;
    type Decoder = MessageDecoder<A>;

    fn encoder(&mut self) -> Self::Encoder {
        ProstEncoder::default()
    }

    fn decoder(&mut self) -> Self::Decoder {
        MessageDecoder(PhantomData)
    }
}

/// Decodes messages whole.
#[derive(Debug)]
pub(crate) struct MessageDecoder<A>(PhantomData<fn() -> A>);

impl<A: Message + Default> Decoder for MessageDecoder<A> {
    type Item = A;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<A>, Status> {
        A::decode(buffer).map(Some).map_err(|error| {
            let mut status = Status::internal(error.to_string());
            status.set_source(Arc::new(error));
            status
        })
    }
}
