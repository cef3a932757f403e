//! How nodes end: killed, or silent for longer than their lease. And how all of them do, when what
//! is left is compared with what clients were told.

use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use super::{
    super::{
        member::COROUTINES,
        tally::Tally,
        told::{Order, now},
    },
    Awaited, Cluster, Seen, Silence, failed, send,
};
use crate::{Error, lasting::bank::BALANCE};

impl Cluster {
    /// Returns whether a client of a process was told of a transfer.
    fn has_served(&self, node: u16) -> bool {
        let first = self.lives[usize::from(node)].first as usize;
        self.told[first..first + COROUTINES as usize].iter().any(|told| told.acknowledged > 0)
    }

    /// Kills a node, and starts it again: an owner when others serve its rows, a client at once or
    /// when the others have changed the view. Returns what does not end.
    pub(super) fn kill(&mut self, node: u16) -> Result<Result<(), String>, Error> {
        let (before, number) = (self.view.life(node), self.view.number);
        let life = &mut self.lives[usize::from(node)];
        let killed = now();
        life.process.kill().and_then(|()| life.process.wait()).map_err(failed)?;
        // Its last lines are taken, and its end is no finding.
        life.number = u64::MAX;
        self.tally.kills += 1;
        if node < self.shape.owners {
            self.awaited = Some(Awaited { node, killed, served: None });
            let is_served = |cluster: &Self| cluster.awaited.as_ref().is_some_and(|awaited| awaited.served.is_some());
            self.until(self.patience(), is_served)?;
            let Some(served) = self.awaited.take().and_then(|awaited| awaited.served) else {
                return Ok(Err(format!("rows of node {node}, which was killed, are not served")));
            };
            self.tally.failovers.push(Duration::from_nanos(served - killed));
        } else if self.tally.kills.is_multiple_of(2)
            && !self.until(self.patience(), |cluster| cluster.view.number > number)?
        {
            return Ok(Err(format!("the view does not change after the end of node {node}, a client")));
        }
        self.restart(node)?;
        self.is_back(node, before)
    }

    /// Waits until a node is back that was started again, and the cluster is repaired.
    fn is_back(&mut self, node: u16, before: Option<u64>) -> Result<Result<(), String>, Error> {
        let owners = self.shape.owners;
        let is_repaired = move |cluster: &Self| {
            let Seen { is_whole, members, .. } = &cluster.view;
            let is_here = node >= owners || cluster.view.life(node).is_some_and(|life| Some(life) != before);
            is_here && *is_whole && members.len() == usize::from(owners)
        };
        if !self.until(self.patience(), is_repaired)? {
            return Ok(Err(format!("the cluster is not repaired after the end of node {node}")));
        }
        let serves = self.until(self.patience(), |cluster| cluster.has_served(node))?;
        Ok(serves.then_some(()).ok_or_else(|| format!("no client of node {node} goes on after its return")))
    }

    fn signal(&self, node: u16, signal: Signal) -> Result<(), Error> {
        let process = Pid::from_child(&self.lives[usize::from(node)].process);
        kill_process(process, signal).map_err(failed)
    }

    /// Begins or ends a node's silence.
    fn set_silent(&self, node: u16, silence: Silence, is_silent: bool) -> Result<(), Error> {
        match (silence, &self.places) {
            (Silence::Stopped, _) => self.signal(node, if is_silent { Signal::STOP } else { Signal::CONT }),
            (Silence::CutOff, Some(places)) => Ok(places.set_link(node, if is_silent { "down" } else { "up" })?),
            (Silence::CutOff, None) => Err(failed("there are no links")),
        }
    }

    /// Silences a node for longer than its lease. It finds itself out, ends, and is started again.
    /// Returns what does not end.
    pub(super) fn silence(&mut self, node: u16, silence: Silence) -> Result<Result<(), String>, Error> {
        let (before, number) = (self.view.life(node), self.lives[usize::from(node)].number);
        self.lives[usize::from(node)].is_afflicted = true;
        self.set_silent(node, silence, true)?;
        match silence {
            Silence::Stopped => self.tally.pauses += 1,
            Silence::CutOff => self.tally.partitions += 1,
        }
        if node < self.shape.owners {
            if !self.until(self.patience(), |cluster| cluster.view.life(node).is_none())? {
                self.set_silent(node, silence, false)?;
                return Ok(Err(format!("the view still has node {node}, which is silent: {silence:?}")));
            }
        } else {
            self.until(4 * self.shape.lease, |_| false)?;
        }
        let told = |cluster: &Self| -> u64 {
            let first = cluster.lives[usize::from(node)].first as usize;
            cluster.told[first..first + COROUTINES as usize].iter().map(|told| told.acknowledged).sum()
        };
        let asleep = told(self);
        self.set_silent(node, silence, false)?;
        // Both may have been told of one just before.
        let ends = |cluster: &Self| {
            cluster.lives[usize::from(node)].number != number || told(cluster) > asleep + 2 * COROUTINES
        };
        if !self.until(self.patience(), ends)? {
            let told = &self.lives[usize::from(node)].failed;
            let finding = format!("node {node}, which was {silence:?}, neither finds itself out nor goes on: {told:?}");
            return Ok(Err(finding));
        }
        if self.lives[usize::from(node)].number == number {
            // The others have waited for it.
            self.lives[usize::from(node)].is_afflicted = false;
            return Ok(Ok(()));
        }
        self.is_back(node, before)
    }

    /// Ends all clients, and compares what they were told with what is left.
    pub(super) fn settle(&mut self) -> Result<(), Error> {
        self.is_over = true;
        for node in 0..self.lives.len() {
            if send(&mut self.lives[node].orders, &Order::Stop).is_err() {
                self.tally.is_odd(format!("the process of node {node} takes no orders: it has ended"));
            }
        }
        let all = |cluster: &Self| cluster.lives.iter().all(|life| life.has_ended);
        if !self.until(self.patience(), all)? {
            for node in self.lives.iter().enumerate().filter(|(_, life)| !life.has_ended).map(|(node, _)| node) {
                let finding = format!("clients of node {node} have calls that do not end");
                self.tally.wrong.stuck += 1;
                self.tally.findings.push(finding);
            }
        }
        let clients = self.told.len() as u64;
        if let Some(last) = self.lives.iter_mut().rev().find(|life| life.has_ended) {
            send(&mut last.orders, &Order::Check { clients })?;
            self.until(self.patience(), |cluster| cluster.left.is_some())?;
        }
        let expected = self.shape.accounts * BALANCE;
        match self.left.take() {
            Some(Ok((sum, marks, locked))) => {
                if sum != expected {
                    self.tally.wrong.torn += 1;
                    self.tally.findings.push(format!("the sum is {sum}, and {expected} were put in"));
                }
                for ((client, found), told) in (0..).zip(marks).zip(&self.told) {
                    let Tally { wrong, findings, .. } = &mut self.tally;
                    told.judge(client, found, wrong, findings);
                }
                locked.into_iter().for_each(|finding| self.tally.is_stuck(finding));
            }
            Some(Err(why)) => self.tally.is_stuck(format!("what is left cannot be read: {why}")),
            None => self.tally.is_stuck("reading what is left does not end".to_owned()),
        }
        Ok(())
    }
}
