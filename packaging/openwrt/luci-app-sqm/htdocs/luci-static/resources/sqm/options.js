'use strict';
'require baseclass';

/* The options of a section. Made from the registry of options in crates/plan/src/options; do not change it here:
   SQM_UPDATE=1 cargo test -p sqm-plan --test luci */

return baseclass.extend({
	options: [
		{
			name: 'enabled', tab: 'basic', level: 'basic', kind: 'switch',
			title: _('Enable'),
			about: _('Shape this interface. If off, the section is kept but has no effect.'),
			standard: '0',
		},
		{
			name: 'interface', tab: 'basic', level: 'basic', kind: 'device',
			title: _('Interface'),
			about: _('The network device that leads to the internet, such as eth0.2 or pppoe-wan; not the whole switch, and not the logical network.'),
		},
		{
			name: 'download', tab: 'basic', level: 'basic', kind: 'rate',
			title: _('Download speed'),
			about: _('A little below the line\'s real speed: 85 % of the advertised speed, or 95 % of the speed measured with shaping off. It includes headers and framing, so tests show a few percent less. 0 leaves this direction unshaped.'),
			unit: 'kbit/s',
		},
		{
			name: 'upload', tab: 'basic', level: 'basic', kind: 'rate',
			title: _('Upload speed'),
			about: _('As for the download. The upload is usually slower, and its full queue adds the most latency.'),
			unit: 'kbit/s',
		},
		{
			name: 'facing', tab: 'basic', level: 'expert', kind: 'choice',
			title: _('The interface faces'),
			about: _('Change it only if the device leads to the home network instead of the internet; download and upload then change places.'),
			standard: 'internet',
			choices: [
				[ 'internet', _('the upload leaves through the device') ],
				[ 'lan', _('the download leaves through the device') ]
			],
		},
		{
			name: 'drift', tab: 'basic', level: 'expert', kind: 'choice',
			title: _('If another program changes the queues'),
			about: _('How the daemon reacts. Rates that another program sets again and again, such as cake-autorate, are left alone in either case.'),
			choices: [
				[ 'repair', _('set them up again as configured') ],
				[ 'report', _('leave them, and report the difference') ]
			],
		},
		{
			name: 'debug_logging', tab: 'basic', level: 'expert', kind: 'switch',
			title: _('Debug logging'),
			about: _('OpenWrt\'s package then writes the plan into /var/run/sqm/INTERFACE.start-sqm.log when its service starts. It has no other effect, because every command reports what it did.'),
			standard: '0',
		},
		{
			name: 'verbosity', tab: 'basic', level: 'expert', kind: 'integer',
			title: _('Log verbosity'),
			about: _('An option of sqm-scripts without effect here, because every command reports what it did.'),
			standard: '5',
			range: [ 0, 10 ],
		},
		{
			name: 'autorate', tab: 'basic', level: 'advanced', kind: 'choice',
			title: _('Follow a line that varies'),
			about: _('The daemon adapts the rates to latency under load, for mobile, satellite and some cable lines; it starts with the speeds above.'),
			standard: '0',
			choices: [
				[ '0', _('no, both rates stay') ],
				[ '1', _('yes, both rates move') ],
				[ 'download', _('the download alone moves; the upload stays') ],
				[ 'upload', _('the upload alone moves; the download stays') ]
			],
		},
		{
			name: 'min_download', tab: 'basic', level: 'advanced', kind: 'rate',
			title: _('Lowest download speed'),
			about: _('The download is never shaped to less, even if latency is high.'),
			unit: 'kbit/s',
		},
		{
			name: 'max_download', tab: 'basic', level: 'advanced', kind: 'rate',
			title: _('Highest download speed'),
			about: _('The download is never shaped to more.'),
			unit: 'kbit/s',
		},
		{
			name: 'min_upload', tab: 'basic', level: 'advanced', kind: 'rate',
			title: _('Lowest upload speed'),
			about: _('The upload is never shaped to less, even if latency is high.'),
			unit: 'kbit/s',
		},
		{
			name: 'max_upload', tab: 'basic', level: 'advanced', kind: 'rate',
			title: _('Highest upload speed'),
			about: _('The upload is never shaped to more.'),
			unit: 'kbit/s',
		},
		{
			name: 'autorate_reflectors', tab: 'basic', level: 'expert', kind: 'text',
			title: _('Reflectors'),
			about: _('Hosts that answer the daemon\'s probes: addresses that answer pings, sqm://ADDRESS of \'sqm serve\', irtt://ADDRESS of \'irtt server\', separated by blanks or commas; empty means well-known resolvers.'),
		},
		{
			name: 'autorate_log', tab: 'basic', level: 'expert', kind: 'text',
			title: _('Log of decisions'),
			about: _('The name of a file in /var/log/sqm to which the daemon writes each decision, such as rates.csv.'),
		},
		{
			name: 'script', tab: 'queue', level: 'basic', kind: 'choice',
			title: _('Setup script'),
			about: _('The kind of queues to set up. best_of_cake is recommended; the others are those of sqm-scripts. Or the name of a text of tc commands of your own, such as mine.tc.'),
			choices: [
				[ 'best_of_cake.qos', _('cake, with settings for each direction: recommended') ],
				[ 'piece_of_cake.qos', _('cake with one class: the usual choice of sqm-scripts') ],
				[ 'layer_cake.qos', _('cake with three classes by DSCP') ],
				[ 'simple.qos', _('HTB with three classes by DSCP') ],
				[ 'simplest.qos', _('HTB with one class: for slow processors') ],
				[ 'simplest_tbf.qos', _('a token bucket: for the slowest processors') ],
				[ 'hfsc_lite.qos', _('HFSC with three classes') ],
				[ 'hfsc_litest.qos', _('HFSC with one class') ]
			],
		},
		{
			name: 'qdisc', tab: 'queue', level: 'advanced', kind: 'choice',
			title: _('Queueing discipline'),
			about: _('The queue in each class, for setup scripts that leave a choice; those with cake in their name always use cake.'),
			standard: 'fq_codel',
			choices: [
				[ 'fq_codel', _('fair queues with CoDel') ],
				[ 'cake', _('CAKE') ],
				[ 'codel', _('CoDel on one queue') ],
				[ 'pie', _('PIE on one queue') ],
				[ 'sfq', _('fair queues without active queue management') ],
				[ 'pfifo', _('a plain queue, in packets') ],
				[ 'bfifo', _('a plain queue, in bytes') ]
			],
		},
		{
			name: 'squash_dscp', tab: 'queue', level: 'advanced', kind: 'switch',
			title: _('Erase DSCP of arriving packets'),
			about: _('Marks of the provider do not reach your home network. If not set, the setup script decides.'),
		},
		{
			name: 'squash_ingress', tab: 'queue', level: 'advanced', kind: 'switch',
			title: _('Ignore DSCP of arriving packets'),
			about: _('Arriving packets are all treated alike, whatever their DSCP. If not set, the setup script decides.'),
		},
		{
			name: 'use_mq', tab: 'queue', level: 'expert', kind: 'switch',
			title: _('Use several processors'),
			about: _('One CAKE for each transmit queue of the device (Linux 7.0 and later); for lines above about 500 Mbit/s.'),
			standard: '0',
		},
		{
			name: 'mark_mask', tab: 'queue', level: 'expert', kind: 'mask',
			title: _('Bits of the firewall mark'),
			about: _('The bits that simple.qos may use, if other software sets marks, too.'),
			standard: '0xff',
		},
		{
			name: 'egress_script', tab: 'queue', level: 'expert', kind: 'choice',
			title: _('Setup script of one direction'),
			about: _('In place of the common one, such as one with fq_codel where the processor is too slow for cake.'),
			direction: 'egress',
			choices: [
				[ 'best_of_cake.qos', _('cake, with settings for each direction: recommended') ],
				[ 'piece_of_cake.qos', _('cake with one class: the usual choice of sqm-scripts') ],
				[ 'layer_cake.qos', _('cake with three classes by DSCP') ],
				[ 'simple.qos', _('HTB with three classes by DSCP') ],
				[ 'simplest.qos', _('HTB with one class: for slow processors') ],
				[ 'simplest_tbf.qos', _('a token bucket: for the slowest processors') ],
				[ 'hfsc_lite.qos', _('HFSC with three classes') ],
				[ 'hfsc_litest.qos', _('HFSC with one class') ]
			],
		},
		{
			name: 'egress_qdisc', tab: 'queue', level: 'expert', kind: 'choice',
			title: _('Queueing discipline of one direction'),
			about: _('In place of the common one.'),
			direction: 'egress',
			choices: [
				[ 'fq_codel', _('fair queues with CoDel') ],
				[ 'cake', _('CAKE') ],
				[ 'codel', _('CoDel on one queue') ],
				[ 'pie', _('PIE on one queue') ],
				[ 'sfq', _('fair queues without active queue management') ],
				[ 'pfifo', _('a plain queue, in packets') ],
				[ 'bfifo', _('a plain queue, in bytes') ]
			],
		},
		{
			name: 'ingress_script', tab: 'queue', level: 'expert', kind: 'choice',
			title: _('Setup script of one direction'),
			about: _('In place of the common one, such as one with fq_codel where the processor is too slow for cake.'),
			direction: 'ingress',
			choices: [
				[ 'best_of_cake.qos', _('cake, with settings for each direction: recommended') ],
				[ 'piece_of_cake.qos', _('cake with one class: the usual choice of sqm-scripts') ],
				[ 'layer_cake.qos', _('cake with three classes by DSCP') ],
				[ 'simple.qos', _('HTB with three classes by DSCP') ],
				[ 'simplest.qos', _('HTB with one class: for slow processors') ],
				[ 'simplest_tbf.qos', _('a token bucket: for the slowest processors') ],
				[ 'hfsc_lite.qos', _('HFSC with three classes') ],
				[ 'hfsc_litest.qos', _('HFSC with one class') ]
			],
		},
		{
			name: 'ingress_qdisc', tab: 'queue', level: 'expert', kind: 'choice',
			title: _('Queueing discipline of one direction'),
			about: _('In place of the common one.'),
			direction: 'ingress',
			choices: [
				[ 'fq_codel', _('fair queues with CoDel') ],
				[ 'cake', _('CAKE') ],
				[ 'codel', _('CoDel on one queue') ],
				[ 'pie', _('PIE on one queue') ],
				[ 'sfq', _('fair queues without active queue management') ],
				[ 'pfifo', _('a plain queue, in packets') ],
				[ 'bfifo', _('a plain queue, in bytes') ]
			],
		},
		{
			name: 'cake_rtt', tab: 'queue', level: 'advanced', kind: 'time',
			title: _('Round trip'),
			about: _('The usual round-trip time of your traffic. A value that is too short costs throughput to distant servers, one that is too long costs latency.'),
			choices: [
				[ 'datacentre', _('0.1 ms') ],
				[ 'lan', _('1 ms') ],
				[ 'metro', _('10 ms') ],
				[ 'regional', _('30 ms') ],
				[ 'internet', _('100 ms: cake\'s default') ],
				[ 'oceanic', _('300 ms') ],
				[ 'satellite', _('1 s') ],
				[ 'interplanetary', _('an hour: no active queue management') ]
			],
		},
		{
			name: 'egress_cake_rtt', tab: 'queue', level: 'expert', kind: 'time',
			title: _('Round trip'),
			about: _('The usual round-trip time of your traffic. A value that is too short costs throughput to distant servers, one that is too long costs latency.'),
			direction: 'egress',
			choices: [
				[ 'datacentre', _('0.1 ms') ],
				[ 'lan', _('1 ms') ],
				[ 'metro', _('10 ms') ],
				[ 'regional', _('30 ms') ],
				[ 'internet', _('100 ms: cake\'s default') ],
				[ 'oceanic', _('300 ms') ],
				[ 'satellite', _('1 s') ],
				[ 'interplanetary', _('an hour: no active queue management') ]
			],
		},
		{
			name: 'ingress_cake_rtt', tab: 'queue', level: 'expert', kind: 'time',
			title: _('Round trip'),
			about: _('The usual round-trip time of your traffic. A value that is too short costs throughput to distant servers, one that is too long costs latency.'),
			direction: 'ingress',
			choices: [
				[ 'datacentre', _('0.1 ms') ],
				[ 'lan', _('1 ms') ],
				[ 'metro', _('10 ms') ],
				[ 'regional', _('30 ms') ],
				[ 'internet', _('100 ms: cake\'s default') ],
				[ 'oceanic', _('300 ms') ],
				[ 'satellite', _('1 s') ],
				[ 'interplanetary', _('an hour: no active queue management') ]
			],
		},
		{
			name: 'cake_tins', tab: 'queue', level: 'advanced', kind: 'choice',
			title: _('Classes by DSCP'),
			about: _('The number of classes into which packets are sorted by DSCP. One is enough unless your programs mark their packets.'),
			choices: [
				[ 'besteffort', _('one: all packets alike') ],
				[ 'precedence', _('eight, by the old IP precedence') ],
				[ 'diffserv3', _('three: bulk, best effort, voice') ],
				[ 'diffserv4', _('four: bulk, best effort, video, voice') ],
				[ 'diffserv8', _('eight') ]
			],
		},
		{
			name: 'egress_cake_tins', tab: 'queue', level: 'expert', kind: 'choice',
			title: _('Classes by DSCP'),
			about: _('The number of classes into which packets are sorted by DSCP. One is enough unless your programs mark their packets.'),
			direction: 'egress',
			choices: [
				[ 'besteffort', _('one: all packets alike') ],
				[ 'precedence', _('eight, by the old IP precedence') ],
				[ 'diffserv3', _('three: bulk, best effort, voice') ],
				[ 'diffserv4', _('four: bulk, best effort, video, voice') ],
				[ 'diffserv8', _('eight') ]
			],
		},
		{
			name: 'ingress_cake_tins', tab: 'queue', level: 'expert', kind: 'choice',
			title: _('Classes by DSCP'),
			about: _('The number of classes into which packets are sorted by DSCP. One is enough unless your programs mark their packets.'),
			direction: 'ingress',
			choices: [
				[ 'besteffort', _('one: all packets alike') ],
				[ 'precedence', _('eight, by the old IP precedence') ],
				[ 'diffserv3', _('three: bulk, best effort, voice') ],
				[ 'diffserv4', _('four: bulk, best effort, video, voice') ],
				[ 'diffserv8', _('eight') ]
			],
		},
		{
			name: 'cake_isolation', tab: 'queue', level: 'advanced', kind: 'choice',
			title: _('Fair between'),
			about: _('How the line is shared evenly. With dual-srchost on the upload and dual-dsthost on the download each computer of the home network gets its share, however many connections it has.'),
			choices: [
				[ 'flowblind', _('none: one queue for all') ],
				[ 'srchost', _('senders') ],
				[ 'dsthost', _('receivers') ],
				[ 'hosts', _('pairs of sender and receiver') ],
				[ 'flows', _('connections') ],
				[ 'dual-srchost', _('senders, then their connections') ],
				[ 'dual-dsthost', _('receivers, then their connections') ],
				[ 'triple-isolate', _('senders and receivers, then connections: cake\'s default') ]
			],
		},
		{
			name: 'egress_cake_isolation', tab: 'queue', level: 'expert', kind: 'choice',
			title: _('Fair between'),
			about: _('How the line is shared evenly. With dual-srchost on the upload and dual-dsthost on the download each computer of the home network gets its share, however many connections it has.'),
			direction: 'egress',
			choices: [
				[ 'flowblind', _('none: one queue for all') ],
				[ 'srchost', _('senders') ],
				[ 'dsthost', _('receivers') ],
				[ 'hosts', _('pairs of sender and receiver') ],
				[ 'flows', _('connections') ],
				[ 'dual-srchost', _('senders, then their connections') ],
				[ 'dual-dsthost', _('receivers, then their connections') ],
				[ 'triple-isolate', _('senders and receivers, then connections: cake\'s default') ]
			],
		},
		{
			name: 'ingress_cake_isolation', tab: 'queue', level: 'expert', kind: 'choice',
			title: _('Fair between'),
			about: _('How the line is shared evenly. With dual-srchost on the upload and dual-dsthost on the download each computer of the home network gets its share, however many connections it has.'),
			direction: 'ingress',
			choices: [
				[ 'flowblind', _('none: one queue for all') ],
				[ 'srchost', _('senders') ],
				[ 'dsthost', _('receivers') ],
				[ 'hosts', _('pairs of sender and receiver') ],
				[ 'flows', _('connections') ],
				[ 'dual-srchost', _('senders, then their connections') ],
				[ 'dual-dsthost', _('receivers, then their connections') ],
				[ 'triple-isolate', _('senders and receivers, then connections: cake\'s default') ]
			],
		},
		{
			name: 'cake_nat', tab: 'queue', level: 'advanced', kind: 'switch',
			title: _('Look behind NAT'),
			about: _('Distinguish the computers behind NAT, which share one address. Set it to on, on a router that does NAT itself.'),
		},
		{
			name: 'egress_cake_nat', tab: 'queue', level: 'expert', kind: 'switch',
			title: _('Look behind NAT'),
			about: _('Distinguish the computers behind NAT, which share one address. Set it to on, on a router that does NAT itself.'),
			direction: 'egress',
		},
		{
			name: 'ingress_cake_nat', tab: 'queue', level: 'expert', kind: 'switch',
			title: _('Look behind NAT'),
			about: _('Distinguish the computers behind NAT, which share one address. Set it to on, on a router that does NAT itself.'),
			direction: 'ingress',
		},
		{
			name: 'cake_wash', tab: 'queue', level: 'advanced', kind: 'switch',
			title: _('Erase DSCP'),
			about: _('Remove the DSCP of packets that leave the queue.'),
		},
		{
			name: 'egress_cake_wash', tab: 'queue', level: 'expert', kind: 'switch',
			title: _('Erase DSCP'),
			about: _('Remove the DSCP of packets that leave the queue.'),
			direction: 'egress',
		},
		{
			name: 'ingress_cake_wash', tab: 'queue', level: 'expert', kind: 'switch',
			title: _('Erase DSCP'),
			about: _('Remove the DSCP of packets that leave the queue.'),
			direction: 'ingress',
		},
		{
			name: 'cake_ack_filter', tab: 'queue', level: 'advanced', kind: 'choice',
			title: _('Thin out acknowledgements'),
			about: _('Drop TCP acknowledgements that a later one makes redundant: for the upload of lines whose download is more than about 15 times faster.'),
			choices: [
				[ 'on', _('yes') ],
				[ 'off', _('no') ],
				[ 'aggressive', _('also those that TCP may need') ]
			],
		},
		{
			name: 'egress_cake_ack_filter', tab: 'queue', level: 'expert', kind: 'choice',
			title: _('Thin out acknowledgements'),
			about: _('Drop TCP acknowledgements that a later one makes redundant: for the upload of lines whose download is more than about 15 times faster.'),
			direction: 'egress',
			choices: [
				[ 'on', _('yes') ],
				[ 'off', _('no') ],
				[ 'aggressive', _('also those that TCP may need') ]
			],
		},
		{
			name: 'ingress_cake_ack_filter', tab: 'queue', level: 'expert', kind: 'choice',
			title: _('Thin out acknowledgements'),
			about: _('Drop TCP acknowledgements that a later one makes redundant: for the upload of lines whose download is more than about 15 times faster.'),
			direction: 'ingress',
			choices: [
				[ 'on', _('yes') ],
				[ 'off', _('no') ],
				[ 'aggressive', _('also those that TCP may need') ]
			],
		},
		{
			name: 'cake_ingress', tab: 'queue', level: 'expert', kind: 'switch',
			title: _('Count dropped packets'),
			about: _('Count packets that the queue drops, too, because they have used the line already: on for arriving packets, off for departing ones.'),
		},
		{
			name: 'egress_cake_ingress', tab: 'queue', level: 'expert', kind: 'switch',
			title: _('Count dropped packets'),
			about: _('Count packets that the queue drops, too, because they have used the line already: on for arriving packets, off for departing ones.'),
			direction: 'egress',
		},
		{
			name: 'ingress_cake_ingress', tab: 'queue', level: 'expert', kind: 'switch',
			title: _('Count dropped packets'),
			about: _('Count packets that the queue drops, too, because they have used the line already: on for arriving packets, off for departing ones.'),
			direction: 'ingress',
		},
		{
			name: 'cake_split_gso', tab: 'queue', level: 'expert', kind: 'switch',
			title: _('Split super-packets'),
			about: _('Split super-packets, which network cards build of many packets, for lower delay; off saves processor time above about 1 Gbit/s.'),
		},
		{
			name: 'egress_cake_split_gso', tab: 'queue', level: 'expert', kind: 'switch',
			title: _('Split super-packets'),
			about: _('Split super-packets, which network cards build of many packets, for lower delay; off saves processor time above about 1 Gbit/s.'),
			direction: 'egress',
		},
		{
			name: 'ingress_cake_split_gso', tab: 'queue', level: 'expert', kind: 'switch',
			title: _('Split super-packets'),
			about: _('Split super-packets, which network cards build of many packets, for lower delay; off saves processor time above about 1 Gbit/s.'),
			direction: 'ingress',
		},
		{
			name: 'cake_memlimit', tab: 'queue', level: 'expert', kind: 'size',
			title: _('Memory'),
			about: _('Most memory of the queue; cake chooses it from the rate.'),
		},
		{
			name: 'egress_cake_memlimit', tab: 'queue', level: 'expert', kind: 'size',
			title: _('Memory'),
			about: _('Most memory of the queue; cake chooses it from the rate.'),
			direction: 'egress',
		},
		{
			name: 'ingress_cake_memlimit', tab: 'queue', level: 'expert', kind: 'size',
			title: _('Memory'),
			about: _('Most memory of the queue; cake chooses it from the rate.'),
			direction: 'ingress',
		},
		{
			name: 'cake_fwmark', tab: 'queue', level: 'expert', kind: 'mask',
			title: _('Class by firewall mark'),
			about: _('The bits of the firewall mark that choose the class instead of the DSCP.'),
		},
		{
			name: 'egress_cake_fwmark', tab: 'queue', level: 'expert', kind: 'mask',
			title: _('Class by firewall mark'),
			about: _('The bits of the firewall mark that choose the class instead of the DSCP.'),
			direction: 'egress',
		},
		{
			name: 'ingress_cake_fwmark', tab: 'queue', level: 'expert', kind: 'mask',
			title: _('Class by firewall mark'),
			about: _('The bits of the firewall mark that choose the class instead of the DSCP.'),
			direction: 'ingress',
		},
		{
			name: 'cake_autorate_ingress', tab: 'queue', level: 'expert', kind: 'switch',
			title: _('Estimate the arrival rate'),
			about: _('cake estimates the rate at which packets arrive and shapes to it; meant for lines of unknown rate, and often wrong.'),
		},
		{
			name: 'egress_cake_autorate_ingress', tab: 'queue', level: 'expert', kind: 'switch',
			title: _('Estimate the arrival rate'),
			about: _('cake estimates the rate at which packets arrive and shapes to it; meant for lines of unknown rate, and often wrong.'),
			direction: 'egress',
		},
		{
			name: 'ingress_cake_autorate_ingress', tab: 'queue', level: 'expert', kind: 'switch',
			title: _('Estimate the arrival rate'),
			about: _('cake estimates the rate at which packets arrive and shapes to it; meant for lines of unknown rate, and often wrong.'),
			direction: 'ingress',
		},
		{
			name: 'ingress_ecn', tab: 'queue', level: 'advanced', kind: 'choice',
			title: _('ECN'),
			about: _('Mark packets instead of dropping them, if both ends use ECN. Off for uploads below about 4 Mbit/s, where a mark takes effect too late. cake always marks.'),
			standard: 'ECN',
			direction: 'ingress',
			choices: [
				[ 'ECN', _('mark') ],
				[ 'NOECN', _('drop') ]
			],
		},
		{
			name: 'egress_ecn', tab: 'queue', level: 'advanced', kind: 'choice',
			title: _('ECN'),
			about: _('Mark packets instead of dropping them, if both ends use ECN. Off for uploads below about 4 Mbit/s, where a mark takes effect too late. cake always marks.'),
			standard: 'ECN',
			direction: 'egress',
			choices: [
				[ 'ECN', _('mark') ],
				[ 'NOECN', _('drop') ]
			],
		},
		{
			name: 'ilimit', tab: 'queue', level: 'expert', kind: 'integer',
			title: _('Longest queue'),
			about: _('The most packets in each leaf, or bytes for bfifo; if empty, the setup script decides. Not for cake.'),
			unit: 'packets',
			direction: 'ingress',
			range: [ 1, 4294967295 ],
		},
		{
			name: 'elimit', tab: 'queue', level: 'expert', kind: 'integer',
			title: _('Longest queue'),
			about: _('The most packets in each leaf, or bytes for bfifo; if empty, the setup script decides. Not for cake.'),
			unit: 'packets',
			direction: 'egress',
			range: [ 1, 4294967295 ],
		},
		{
			name: 'itarget', tab: 'queue', level: 'expert', kind: 'time',
			title: _('Target delay'),
			about: _('The standing queue delay that the leaf accepts. Not for cake, which has a round-trip time instead.'),
			standard: 'auto',
			direction: 'ingress',
			choices: [
				[ 'auto', _('computed from the rate') ],
				[ 'default', _('the leaf\'s own') ]
			],
		},
		{
			name: 'etarget', tab: 'queue', level: 'expert', kind: 'time',
			title: _('Target delay'),
			about: _('The standing queue delay that the leaf accepts. Not for cake, which has a round-trip time instead.'),
			standard: 'auto',
			direction: 'egress',
			choices: [
				[ 'auto', _('computed from the rate') ],
				[ 'default', _('the leaf\'s own') ]
			],
		},
		{
			name: 'iqdisc_opts', tab: 'queue', level: 'expert', kind: 'text',
			title: _('More options in tc\'s words'),
			about: _('Words for the leaf or for cake, as in a tc qdisc command; they are checked, and override the other options.'),
			direction: 'ingress',
		},
		{
			name: 'eqdisc_opts', tab: 'queue', level: 'expert', kind: 'text',
			title: _('More options in tc\'s words'),
			about: _('Words for the leaf or for cake, as in a tc qdisc command; they are checked, and override the other options.'),
			direction: 'egress',
		},
		{
			name: 'autoflow', tab: 'queue', level: 'expert', kind: 'switch',
			title: _('Fewer queues on slow lines'),
			about: _('A leaf with fewer queues where the line is slow. Not for cake.'),
			standard: '0',
		},
		{
			name: 'shaper_burst_dur_us', tab: 'queue', level: 'expert', kind: 'integer',
			title: _('Burst'),
			about: _('How much the token bucket may send at once, as time; more saves processor time and costs latency.'),
			unit: 'us',
			standard: '1000',
			range: [ 0, 1000000 ],
		},
		{
			name: 'eshaper_burst_dur_us', tab: 'queue', level: 'expert', kind: 'integer',
			title: _('Burst'),
			about: _('How much the token bucket may send at once, as time; more saves processor time and costs latency.'),
			unit: 'us',
			direction: 'egress',
			range: [ 0, 1000000 ],
		},
		{
			name: 'ishaper_burst_dur_us', tab: 'queue', level: 'expert', kind: 'integer',
			title: _('Burst'),
			about: _('How much the token bucket may send at once, as time; more saves processor time and costs latency.'),
			unit: 'us',
			direction: 'ingress',
			range: [ 0, 1000000 ],
		},
		{
			name: 'shaper_quantum_dur_us', tab: 'queue', level: 'expert', kind: 'integer',
			title: _('Quantum'),
			about: _('How much HTB sends from one class before it serves the next, as time.'),
			unit: 'us',
			range: [ 0, 1000000 ],
		},
		{
			name: 'eshaper_quantum_dur_us', tab: 'queue', level: 'expert', kind: 'integer',
			title: _('Quantum'),
			about: _('How much HTB sends from one class before it serves the next, as time.'),
			unit: 'us',
			direction: 'egress',
			range: [ 0, 1000000 ],
		},
		{
			name: 'ishaper_quantum_dur_us', tab: 'queue', level: 'expert', kind: 'integer',
			title: _('Quantum'),
			about: _('How much HTB sends from one class before it serves the next, as time.'),
			unit: 'us',
			direction: 'ingress',
			range: [ 0, 1000000 ],
		},
		{
			name: 'link', tab: 'link', level: 'basic', kind: 'choice',
			title: _('Kind of line'),
			about: _('Sets the bytes that the line adds to each packet. Too many cost a little speed, too few cost latency: when in doubt, \'unknown\'.'),
			choices: [
				[ 'ethernet', _('plain Ethernet as the bottleneck') ],
				[ 'ethernet-vlan', _('Ethernet with a VLAN tag') ],
				[ 'ethernet-pppoe', _('Ethernet with PPPoE') ],
				[ 'ethernet-vlan-pppoe', _('Ethernet with a VLAN tag and PPPoE') ],
				[ 'docsis', _('cable') ],
				[ 'vdsl2', _('VDSL2 or G.fast, IP over Ethernet') ],
				[ 'vdsl2-vlan', _('VDSL2 or G.fast with a VLAN tag') ],
				[ 'vdsl2-pppoe', _('VDSL2 or G.fast with PPPoE') ],
				[ 'vdsl2-vlan-pppoe', _('VDSL2 or G.fast with a VLAN tag and PPPoE') ],
				[ 'adsl', _('ADSL, encapsulation not known') ],
				[ 'adsl-ipoa-vcmux', _('ADSL, IPoA, VC multiplexing') ],
				[ 'adsl-ipoa-llc', _('ADSL, IPoA, LLC/SNAP') ],
				[ 'adsl-bridged-vcmux', _('ADSL, bridged, VC multiplexing') ],
				[ 'adsl-bridged-llc', _('ADSL, bridged, LLC/SNAP') ],
				[ 'adsl-pppoa-vcmux', _('ADSL, PPPoA, VC multiplexing') ],
				[ 'adsl-pppoa-llc', _('ADSL, PPPoA, LLC') ],
				[ 'adsl-pppoe-vcmux', _('ADSL, PPPoE, VC multiplexing') ],
				[ 'adsl-pppoe-llc', _('ADSL, PPPoE, LLC/SNAP') ],
				[ 'gpon', _('GPON or XGS-PON fibre') ],
				[ 'gpon-vlan', _('GPON or XGS-PON fibre with a VLAN tag') ],
				[ 'gpon-pppoe', _('GPON or XGS-PON fibre with PPPoE') ],
				[ 'gpon-vlan-pppoe', _('GPON or XGS-PON fibre with a VLAN tag and PPPoE') ],
				[ 'epon', _('EPON fibre') ],
				[ 'epon-vlan', _('EPON fibre with a VLAN tag') ],
				[ 'lte', _('LTE or 5G') ],
				[ 'satellite', _('satellite') ],
				[ 'wisp', _('fixed wireless') ],
				[ 'ds-lite', _('IPv4 inside IPv6 over Ethernet') ],
				[ 'conservative', _('not known, and may be ATM') ],
				[ 'unknown', _('not known, but not ATM') ]
			],
		},
		{
			name: 'linklayer', tab: 'link', level: 'advanced', kind: 'choice',
			title: _('Link layer'),
			about: _('How the line carries packets, whole or in cells. The kind of line above sets it.'),
			choices: [
				[ 'none', _('count the kernel\'s packet length') ],
				[ 'ethernet', _('whole packets') ],
				[ 'atm', _('cells of 53 bytes: ADSL') ],
				[ 'adsl', _('another name for atm') ],
				[ 'ptm', _('one byte in 65 is lost: VDSL2') ]
			],
		},
		{
			name: 'overhead', tab: 'link', level: 'advanced', kind: 'integer',
			title: _('Bytes added to each packet'),
			about: _('Bytes that the line adds to each IP packet. The kind of line above sets it; \'sqm test --sweep\' measures it.'),
			unit: 'bytes',
			range: [ -1500, 1500 ],
		},
		{
			name: 'tcMPU', tab: 'link', level: 'advanced', kind: 'integer',
			title: _('Smallest packet'),
			about: _('Smaller packets take as much of the line as one of this size, added bytes included. The kind of line above sets it.'),
			unit: 'bytes',
			range: [ 0, 65535 ],
		},
		{
			name: 'linklayer_adaptation_mechanism', tab: 'link', level: 'expert', kind: 'choice',
			title: _('Counted by'),
			about: _('What computes the size on the line: cake where there is one, a size table otherwise.'),
			standard: 'default',
			choices: [
				[ 'default', _('cake where there is one, a size table otherwise') ],
				[ 'cake', _('cake') ],
				[ 'tc_stab', _('a size table') ],
				[ 'htb_private', _('HTB or TBF') ]
			],
		},
		{
			name: 'tcMTU', tab: 'link', level: 'expert', kind: 'integer',
			title: _('Largest packet of the size table'),
			about: _('Only for packets of more than 1500 bytes.'),
			unit: 'bytes',
			standard: '2047',
			range: [ 0, 65535 ],
		},
		{
			name: 'tcTSIZE', tab: 'link', level: 'expert', kind: 'integer',
			title: _('Entries of the size table'),
			about: _('More entries make the table more exact.'),
			standard: '512',
			range: [ 0, 32000 ],
		},
	],

	/* Options that no form shows. */
	hidden: [ 'target', 'qdisc_advanced', 'qdisc_really_really_advanced', 'linklayer_advanced' ]
});
