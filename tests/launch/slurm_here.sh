#!/usr/bin/env bash
# A real Slurm on this machine for the tests: munged, slurmctld and slurmd of one node, all in one folder.
#   slurm_here.sh start FOLDER   prints `export …` lines to evaluate; exit 3 and one line if it cannot start
#   slurm_here.sh stop FOLDER
# Needs root and Debian's packages: apt-get install --no-install-recommends slurm-wlm munge
set -euo pipefail

cannot() { echo "slurm cannot start here: $1" >&2; exit 3; }

stop() {
  for name in slurmd slurmctld munged; do
    if [ -f "$1/$name.pid" ]; then kill "$(cat "$1/$name.pid")" 2>/dev/null || true; fi
  done
  for _ in $(seq 50); do
    alive=0
    for name in slurmd slurmctld munged; do
      if [ -f "$1/$name.pid" ] && kill -0 "$(cat "$1/$name.pid")" 2>/dev/null; then alive=1; fi
    done
    [ "$alive" = 0 ] && break
    sleep 0.1
  done
}

start() {
  [ "$(id -u)" = 0 ] || cannot "not root"
  for program in munged slurmctld slurmd sbatch srun squeue; do
    command -v "$program" >/dev/null || [ -x "/usr/sbin/$program" ] || cannot "no $program"
  done
  export PATH="$PATH:/usr/sbin"
  mkdir -p "$1"
  cd "$1"
  local here port host cores
  here=$(pwd)
  port=$((20000 + $$ % 20000))
  host=$(hostname -s)
  cores=$(nproc)
  mkdir -p state spool
  # munged refuses a key or a socket below a folder that others may write
  chmod 0755 "$here"
  head -c 1024 /dev/urandom > munge.key
  chmod 0400 munge.key
  setsid munged -F --force --key-file="$here/munge.key" --socket="$here/munge.socket" --pid-file="$here/munge.own.pid" \
    --log-file="$here/munged.log" --seed-file="$here/munge.seed" --num-threads=2 > munged.out 2>&1 < /dev/null &
  echo $! > munged.pid
  cat > slurm.conf <<CONF
ClusterName=here
SlurmctldHost=$host(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$here/munge.socket,cred_expire=5
CredType=cred/munge
SlurmctldPort=$port
SlurmdPort=$((port + 1))
StateSaveLocation=$here/state
SlurmdSpoolDir=$here/spool
SlurmctldPidFile=$here/slurmctld.own.pid
SlurmdPidFile=$here/slurmd.own.pid
SlurmctldLogFile=$here/slurmctld.log
SlurmdLogFile=$here/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=1,bf_interval=1,batch_sched_delay=0,requeue_delay=1
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
JobRequeue=1
ReturnToService=2
KillWait=5
MinJobAge=300
SlurmctldTimeout=30
SlurmdTimeout=30
InactiveLimit=0
NodeName=$host NodeAddr=127.0.0.1 CPUs=$cores State=UNKNOWN
PartitionName=here Nodes=$host Default=YES MaxTime=INFINITE State=UP PriorityTier=1
PartitionName=urgent Nodes=$host MaxTime=INFINITE State=UP PriorityTier=10
CONF
  # an option that this version does not know must not keep it from starting
  sed -i 's/,requeue_delay=1//' slurm.conf
  export SLURM_CONF="$here/slurm.conf"
  for _ in $(seq 50); do [ -S munge.socket ] && break; sleep 0.1; done
  [ -S munge.socket ] || cannot "munged: $(tail -n 1 munged.out munged.log 2>/dev/null | tail -n 1)"
  setsid slurmctld -D -c > slurmctld.out 2>&1 < /dev/null &
  echo $! > slurmctld.pid
  setsid slurmd -D -N "$host" > slurmd.out 2>&1 < /dev/null &
  echo $! > slurmd.pid
  for _ in $(seq 100); do
    if sinfo -h -o %T 2>/dev/null | grep -q idle; then
      echo "export SLURM_CONF=$SLURM_CONF"
      return 0
    fi
    sleep 0.2
  done
  local said
  said=$(grep -ihE 'error|fatal' slurmctld.out slurmd.out slurmctld.log slurmd.log 2>/dev/null | tail -n 1)
  stop "$here"
  cannot "${said:-no idle node after 20 s}"
}

case "${1:-}" in
  start) start "$2" ;;
  stop) stop "$2" ;;
  *) echo "usage: $0 start|stop FOLDER" >&2; exit 2 ;;
esac
