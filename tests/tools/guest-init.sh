#!/bin/busybox sh
# The first process of the guest (src/guest.rs makes the machine): a disk whose every write is logged, an ext4 on it,
# load on that, and the power off.
#
# /dev/vda is the disk, /dev/vdb takes the log, /dev/vdc takes the senders' book. The kernel's command line says how:
# SYNC=direct|fdatasync, SYNCS=kept|skipped, ROUNDS, SEED.
export PATH=/bin:/trial/deps DM_DISABLE_UDEV=1
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev

trial() {
  while read -r module; do insmod "$module" || return; done <modules
  ifconfig lo 127.0.0.1 up || return
  dmsetup create trial --table "0 $(blockdev --getsz /dev/vda) log-writes /dev/vda /dev/vdb" || return
  mount -t ext4 /dev/mapper/trial /disk || return
  sync
  guest-load /disk/log "$SYNC" "$SYNCS" "$ROUNDS" "$SEED" /dev/vdc || return
  umount /disk && dmsetup remove trial && sync && echo "the guest is done"
}

trial || echo "the guest failed"
poweroff -f
