//! A connection that this side makes: the initiator's half of the handshake, a step at a time.

use std::{
    io,
    net::{SocketAddr, TcpStream},
    os::fd::OwnedFd,
    sync::Arc,
    time::Duration,
};

use rustix::{
    io::Errno,
    net::{AddressFamily, SocketFlags, SocketType, connect, ipproto, socket_with, sockopt},
};
use snow::HandshakeState;

use super::{
    flow::{Came, Inflow, Outflow, record_in},
    hello::{Answer, CONFIRM, Hello, PREAMBLE, Verdict, version_of},
    noise::{self, HANDSHAKE, Key, LENGTH},
};

/// A socket with what goes in and out of it.
pub(super) struct Wire {
    pub(super) socket: Arc<TcpStream>,
    pub(super) input: Inflow,
    pub(super) out: Outflow,
}

impl Wire {
    /// Creates a connection whose peer is not known yet. Frames are sent at once. If nothing
    /// arrives, the system probes whether the other side is still there.
    pub(super) fn new(socket: TcpStream, quiet: Duration) -> Result<Self, Errno> {
        sockopt::set_tcp_nodelay(&socket, true)?;
        sockopt::set_socket_keepalive(&socket, true)?;
        let seconds = |duration: Duration| Duration::from_secs(duration.as_secs().max(1));
        sockopt::set_tcp_keepidle(&socket, seconds(quiet))?;
        sockopt::set_tcp_keepintvl(&socket, seconds(quiet / 4))?;
        sockopt::set_tcp_keepcnt(&socket, 4)?;
        Ok(Self { socket: Arc::new(socket), input: Inflow::new(), out: Outflow::new(None) })
    }

    pub(super) fn fill(&mut self) -> io::Result<Came> {
        self.input.fill(&self.socket)
    }

    pub(super) fn flush(&mut self) -> io::Result<bool> {
        self.out.flush(&self.socket)
    }
}

/// Why a connection was not made.
#[derive(Debug)]
pub(super) enum Failed {
    /// Nothing listens there.
    Absent,
    /// It cannot be reached.
    Unreachable,
    /// It ended the connection.
    Broken,
    Version(u16),
    /// Its answer was not made with the key.
    Key,
}

/// A handshake that this side has begun.
pub(super) struct Dial {
    state: Option<HandshakeState>,
    sealed: bool,
    /// The first message is out, so there is a connection.
    pub(super) connected: bool,
}

impl Dial {
    /// Begins to connect.
    pub(super) fn start(
        address: SocketAddr,
        key: &Key,
        hello: &Hello,
        quiet: Duration,
    ) -> Result<(Self, Wire), Failed> {
        let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP));
        let socket: OwnedFd = socket.map_err(|_| Failed::Unreachable)?;
        match connect(&socket, &address) {
            Ok(()) | Err(Errno::INPROGRESS) => {}
            Err(Errno::CONNREFUSED) => return Err(Failed::Absent),
            Err(_) => return Err(Failed::Unreachable),
        }
        let mut wire = Wire::new(TcpStream::from(socket), quiet).map_err(|_| Failed::Unreachable)?;
        let state = noise::initiate(key, &hello.encode(), wire.out.wire()).map_err(|_| Failed::Key)?;
        Ok((Self { state: Some(state), sealed: hello.sealed, connected: false }, wire))
    }

    /// Continues the handshake as far as possible. If the answer is a welcome, the confirmation is
    /// in the bytes that are sent next.
    pub(super) fn advance(&mut self, wire: &mut Wire) -> Result<Option<Answer>, Failed> {
        if !self.connected {
            // While it is not connected, the socket takes nothing.
            self.connected = wire.flush().map_err(|error| match error.kind() {
                io::ErrorKind::ConnectionRefused => Failed::Absent,
                io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => Failed::Broken,
                _ => Failed::Unreachable,
            })?;
            if !self.connected {
                return Ok(None);
            }
        }
        let came = wire.fill().map_err(|_| Failed::Broken)?;
        let answer = self.hear(wire)?;
        if answer.is_none() && came == Came::End {
            return Err(Failed::Broken);
        }
        Ok(answer)
    }

    fn hear(&mut self, wire: &mut Wire) -> Result<Option<Answer>, Failed> {
        let Some((preamble, rest)) = wire.input.raw().split_first_chunk::<PREAMBLE>() else { return Ok(None) };
        match version_of(preamble) {
            Some(super::hello::VERSION) => {}
            Some(theirs) => return Err(Failed::Version(theirs)),
            None => return Err(Failed::Key),
        }
        let Some(record) = record_in(rest) else {
            return if rest.len() > LENGTH + HANDSHAKE { Err(Failed::Key) } else { Ok(None) };
        };
        let state = self.state.take().ok_or(Failed::Broken)?;
        let length = PREAMBLE + LENGTH + record.len();
        let (session, answer) = noise::finish(state, record).map_err(|_| Failed::Key)?;
        let answer = Answer::decode(&answer).ok_or(Failed::Key)?;
        wire.input.consume_raw(length);
        if answer.verdict == Verdict::Welcome {
            let (sealer, opener) = session.split();
            wire.out = Outflow::new(Some(sealer));
            wire.out.frames().push(CONFIRM);
            if self.sealed {
                wire.input.seal(opener);
            } else {
                wire.out.open_up().map_err(|_| Failed::Key)?;
            }
        }
        Ok(Some(answer))
    }
}
