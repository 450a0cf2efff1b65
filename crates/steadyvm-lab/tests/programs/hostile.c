// SPDX-License-Identifier: GPL-2.0-only
/*
 * A hostile driver of the sockets device, in user space: it writes garbage into registers,
 * descriptors, rings and requests, with enough sense in it that the garbage gets far.
 *
 * The device's registers are mapped from /dev/mem, so its driver must be unbound. Memory that the
 * device may write to is a range that the kernel was told not to use (memmap=), so that this
 * guest survives what it does.
 *
 * One thread plays whole lives of the device (reset, set-up, requests, garbage); another one rings
 * and changes the same memory meanwhile.
 *
 * usage: hostile REGISTERS MEMORY SIZE SEED LIVES
 */
#include <err.h>
#include <fcntl.h>
#include <linux/virtio_config.h>
#include <linux/virtio_mmio.h>
#include <linux/virtio_ring.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/io.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../../../../kernel/modules/steadyvm_sockets/steadyvm_sockets.h"

#define ARRAY_SIZE(array)	(sizeof(array) / sizeof((array)[0]))
#define CHANNELS	2
/* What a channel has of the memory: its rings, then messages. */
#define CHANNEL_SIZE	(4u << 20)
#define AVAILABLE	0x4000
#define USED		0x8000
#define MESSAGES	0x10000
#define HANDLES		8
#define STEPS		60
#define NEEDS_RESET	VIRTIO_CONFIG_S_NEEDS_RESET

static volatile uint8_t *registers;
static uint8_t *memory;
static uint64_t memory_start, memory_size;
static uint16_t port;
static uint16_t queue_size;
static uint64_t handles[HANDLES];
static atomic_bool done;
static atomic_ulong requests, answered, accepted, broken;

/* A source of garbage (splitmix64), one a thread. */
struct garbage {
	uint64_t state;
	unsigned int channel;
	uint16_t next;		/* of the available ring */
};

static uint64_t any(struct garbage *garbage)
{
	uint64_t mixed = garbage->state += 0x9e3779b97f4a7c15;

	mixed = (mixed ^ mixed >> 30) * 0xbf58476d1ce4e5b9;
	mixed = (mixed ^ mixed >> 27) * 0x94d049bb133111eb;
	return mixed ^ mixed >> 31;
}

static uint32_t below(struct garbage *garbage, uint32_t bound)
{
	return (any(garbage) >> 32) % bound;
}

static bool one_in(struct garbage *garbage, uint32_t bound)
{
	return !below(garbage, bound);
}

/* Numbers at whose edges mistakes are. */
static uint64_t odd_number(struct garbage *garbage)
{
	static const uint64_t edges[] = {
		0, 1, 2, 7, 8, 127, 128, 129, 4095, 4096, 4097, 0x7fff, 0xffff, 0x10000, 1 << 20,
		(1 << 20) + 1, INT32_MAX, UINT32_MAX, 1ull << 32, INT64_MAX, UINT64_MAX,
	};

	switch (below(garbage, 3)) {
	case 0:
		return edges[below(garbage, ARRAY_SIZE(edges))];
	case 1:
		return below(garbage, 64);
	default:
		return any(garbage) >> below(garbage, 64);
	}
}

/* An address of the guest: of what may be written to, or of none of its memory. */
static uint64_t odd_address(struct garbage *garbage)
{
	switch (below(garbage, 8)) {
	case 0:
		/* Other devices' registers, the end of the address space. */
		return 0xd0000000 + below(garbage, 0x20000);
	case 1:
		return UINT64_MAX - below(garbage, 0x2000);
	case 2:
		return (1ull << 40) + any(garbage) % (1ull << 20);
	default:
		/* The other half is left free for what is written beyond. */
		return memory_start + any(garbage) % (memory_size / 2);
	}
}

static uint32_t get(unsigned int offset)
{
	return *(volatile uint32_t *)(registers + offset);
}

static void put(unsigned int offset, uint32_t value)
{
	*(volatile uint32_t *)(registers + offset) = value;
}

static void put_address(unsigned int low, uint64_t address)
{
	put(low, address);
	put(low + 4, address >> 32);
}

static uint8_t *place(const struct garbage *garbage, uint32_t offset)
{
	return memory + garbage->channel * CHANNEL_SIZE + offset;
}

static uint64_t address_of(const struct garbage *garbage, uint32_t offset)
{
	return memory_start + garbage->channel * CHANNEL_SIZE + offset;
}

static void ring(struct garbage *garbage)
{
	uint32_t queue = one_in(garbage, 20) ? odd_number(garbage) : garbage->channel;

	if (one_in(garbage, 2))
		outl(queue, port);
	else
		put(VIRTIO_MMIO_QUEUE_NOTIFY, queue);
}

static void set_up_queue(struct garbage *garbage, unsigned int channel)
{
	struct garbage which = { .channel = channel };
	bool sane = !one_in(garbage, 8);

	put(VIRTIO_MMIO_QUEUE_SEL, channel);
	put(VIRTIO_MMIO_QUEUE_NUM, sane ? queue_size : odd_number(garbage));
	put_address(VIRTIO_MMIO_QUEUE_DESC_LOW,
		    sane ? address_of(&which, 0) : odd_address(garbage));
	sane |= one_in(garbage, 2);
	put_address(VIRTIO_MMIO_QUEUE_AVAIL_LOW,
		    sane ? address_of(&which, AVAILABLE) : odd_address(garbage));
	put_address(VIRTIO_MMIO_QUEUE_USED_LOW,
		    sane ? address_of(&which, USED) : odd_address(garbage));
	put(VIRTIO_MMIO_QUEUE_READY, one_in(garbage, 16) ? odd_number(garbage) : 1);
}

static void set_up(struct garbage *garbage)
{
	uint32_t status = VIRTIO_CONFIG_S_ACKNOWLEDGE | VIRTIO_CONFIG_S_DRIVER;
	unsigned int i;

	if (!one_in(garbage, 16))
		put(VIRTIO_MMIO_STATUS, 0);
	put(VIRTIO_MMIO_STATUS, status);
	for (i = 0; i < 2; i++) {
		put(VIRTIO_MMIO_DEVICE_FEATURES_SEL, i);
		put(VIRTIO_MMIO_DRIVER_FEATURES_SEL, i);
		put(VIRTIO_MMIO_DRIVER_FEATURES,
		    one_in(garbage, 32) ? odd_number(garbage) : get(VIRTIO_MMIO_DEVICE_FEATURES));
	}
	status |= VIRTIO_CONFIG_S_FEATURES_OK;
	put(VIRTIO_MMIO_STATUS, status);
	for (i = 0; i < CHANNELS; i++) {
		memset(memory + i * CHANNEL_SIZE, 0, MESSAGES);
		set_up_queue(garbage, i);
	}
	garbage->next = 0;
	put(VIRTIO_MMIO_STATUS, status | VIRTIO_CONFIG_S_DRIVER_OK);
}

/* A request that makes sense, but for what chance adds. */
static void fill_request(struct garbage *garbage, struct svs_request *request)
{
	*request = (struct svs_request) {
		.op = one_in(garbage, 6) ? SVS_OP_SOCKET : below(garbage, SVS_OP_WAKE + 2),
		.handle = handles[below(garbage, HANDLES)],
		.name_len = one_in(garbage, 2) ? 0 : sizeof(struct sockaddr_in),
		.control_len = one_in(garbage, 4) ? below(garbage, 64) : 0,
		.data_len = below(garbage, 256),
		.name_room = one_in(garbage, 2) ? SVS_MAX_NAME : 0,
		.control_room = one_in(garbage, 2) ? below(garbage, 512) : 0,
		.data_room = below(garbage, 512),
		.argument = { below(garbage, 64), below(garbage, 64), 0 },
	};
	switch (request->op) {
	case SVS_OP_SOCKET:
		request->argument[0] = one_in(garbage, 2) ? AF_INET : AF_INET6;
		request->argument[1] = 1 + below(garbage, 2);
		request->argument[2] = 0;
		break;
	case SVS_OP_SEND:
	case SVS_OP_RECEIVE:
		request->argument[0] = one_in(garbage, 4) ? any(garbage) : 0;
		break;
	case SVS_OP_STATE_TABLE:
		request->argument[0] = odd_address(garbage);
		if (!one_in(garbage, 4))
			request->argument[0] &= ~7ull;
		break;
	case SVS_OP_EVENT_RING:
		request->argument[0] = odd_address(garbage);
		if (!one_in(garbage, 8))
			request->argument[0] &= ~7ull;
		request->argument[1] = 1ull << below(garbage, 14);
		if (one_in(garbage, 8))
			request->argument[1] = any(garbage);
		break;
	case SVS_OP_WAIT:
		/* The host allows a second, which would be few lives. */
		request->argument[0] = one_in(garbage, 100) ? UINT64_MAX : below(garbage, 1 << 16);
		break;
	}
	while (one_in(garbage, 6)) {
		switch (below(garbage, 4)) {
		case 0:
			((uint32_t *)&request->name_len)[below(garbage, 6)] = odd_number(garbage);
			break;
		case 1:
			request->argument[below(garbage, 3)] = odd_number(garbage);
			break;
		case 2:
			request->handle = any(garbage);
			break;
		default:
			((uint8_t *)request)[below(garbage, sizeof(*request))] = any(garbage);
		}
	}
}

static uint32_t fill_message(struct garbage *garbage, uint8_t *at)
{
	struct svs_request request;
	struct sockaddr_in name = {
		.sin_family = AF_INET,
		.sin_port = htons(1024 + below(garbage, 8)),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
	};
	uint32_t i, length;

	fill_request(garbage, &request);
	memcpy(at, &request, sizeof(request));
	/* Lengths may be lies: what is there is at most this. */
	length = (request.name_len % 256) + (request.control_len % 512) + (request.data_len % 4096);
	for (i = 0; i < length; i++)
		at[sizeof(request) + i] = any(garbage);
	if (request.name_len == sizeof(name) && !one_in(garbage, 8))
		memcpy(at + sizeof(request), &name, sizeof(name));
	return sizeof(request) + length;
}

static uint32_t room_of(const uint8_t *message)
{
	struct svs_request request;

	memcpy(&request, message, sizeof(request));
	return sizeof(struct svs_response) + request.name_room % 256 + request.control_room % 8192 +
		request.data_room % 8192;
}

/* Cuts a part into descriptors; the number of the next one. */
static unsigned int cut(struct garbage *garbage, struct vring_desc *table, unsigned int number,
			uint64_t address, uint32_t length, uint16_t flags)
{
	while (length) {
		uint32_t piece = one_in(garbage, 4) ? 1 + below(garbage, length) : length;

		table[number] = (struct vring_desc) {
			.addr = address,
			.len = piece,
			.flags = flags | VRING_DESC_F_NEXT,
			.next = number + 1,
		};
		address += piece;
		length -= piece;
		number++;
	}
	return number;
}

static void spoil_descriptor(struct garbage *garbage, struct vring_desc *descriptor)
{
	switch (below(garbage, 4)) {
	case 0:
		descriptor->addr = odd_address(garbage);
		break;
	case 1:
		descriptor->len = odd_number(garbage);
		break;
	case 2:
		descriptor->flags = any(garbage);
		break;
	default:
		descriptor->next = odd_number(garbage);
	}
}

/* Lays a request out, makes it available, rings, and takes what is answered. */
static void ask(struct garbage *garbage)
{
	struct vring_desc *table = (void *)place(garbage, 0);
	struct vring_avail *available = (void *)place(garbage, AVAILABLE);
	struct vring_used *used = (void *)place(garbage, USED);
	uint32_t slot = MESSAGES + below(garbage, 16) * 0x20000;
	uint8_t *message = place(garbage, slot);
	struct svs_response *response = (void *)place(garbage, slot + 0x10000);
	uint32_t length = fill_message(garbage, message);
	unsigned int last;
	uint16_t before = *(volatile uint16_t *)&used->idx;

	memset(response, 0xff, sizeof(*response));
	last = cut(garbage, table, 0, address_of(garbage, slot), length, 0);
	last = cut(garbage, table, last, address_of(garbage, slot + 0x10000), room_of(message),
		   VRING_DESC_F_WRITE);
	table[last - 1].flags &= ~VRING_DESC_F_NEXT;
	while (one_in(garbage, 10))
		spoil_descriptor(garbage, &table[below(garbage, last)]);
	available->ring[garbage->next++ % queue_size] = 0;
	atomic_thread_fence(memory_order_seq_cst);
	*(volatile uint16_t *)&available->idx = garbage->next;
	atomic_thread_fence(memory_order_seq_cst);
	ring(garbage);
	requests++;
	if (*(volatile uint16_t *)&used->idx == before)
		return;
	answered++;
	if (response->error)
		return;
	accepted++;
	if (response->value > UINT32_MAX)
		handles[below(garbage, HANDLES)] = response->value;
}

/* Registers: any offset, width and value. Not the reset alone, which ends a life. */
static void spoil_register(struct garbage *garbage)
{
	unsigned int offset = below(garbage, 0x200);
	uint64_t value = one_in(garbage, 2) ? any(garbage) : odd_number(garbage);

	switch (below(garbage, 4)) {
	case 0:
		registers[offset] = value;
		break;
	case 1:
		*(volatile uint16_t *)(registers + (offset & ~1)) = value;
		break;
	case 2:
		*(volatile uint64_t *)(registers + (offset & ~7)) = value;
		break;
	default:
		put(offset & ~3, value);
	}
	get(below(garbage, 0x1000) & ~3);
}

static void spoil_memory(struct garbage *garbage)
{
	/* Rings and descriptors, or anything: state tables and event rings are somewhere. */
	uint32_t range = one_in(garbage, 2) ? MESSAGES : CHANNEL_SIZE;
	uint8_t *at = place(garbage, below(garbage, range - 64));
	unsigned int count = 1 + below(garbage, 64);

	while (count--)
		*at++ = any(garbage);
}

static void spoil_ring(struct garbage *garbage)
{
	struct vring_avail *available = (void *)place(garbage, AVAILABLE);

	switch (below(garbage, 3)) {
	case 0:
		garbage->next = odd_number(garbage);
		available->idx = garbage->next;
		break;
	case 1:
		available->ring[below(garbage, queue_size)] = odd_number(garbage);
		*(volatile uint16_t *)&available->idx = ++garbage->next;
		break;
	default:
		available->flags = any(garbage);
	}
	ring(garbage);
}

static void step(struct garbage *garbage)
{
	switch (below(garbage, 100)) {
	case 0:
		spoil_register(garbage);
		break;
	case 1:
		spoil_memory(garbage);
		break;
	case 2:
		spoil_ring(garbage);
		break;
	default:
		ask(garbage);
	}
}

static void *meanwhile(void *argument)
{
	struct garbage *garbage = argument;

	while (!done) {
		/* The other thread gives it the next life. */
		if (get(VIRTIO_MMIO_STATUS) & NEEDS_RESET)
			sched_yield();
		else
			step(garbage);
	}
	return NULL;
}

static void *map(int file, uint64_t start, uint64_t size)
{
	void *mapped = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, start);

	if (mapped == MAP_FAILED)
		err(1, "cannot map %#lx of /dev/mem", (unsigned long)start);
	return mapped;
}

int main(int count, char **words)
{
	struct garbage life = { .channel = 0 }, race = { .channel = 1 };
	unsigned long lives, number;
	pthread_t thread;
	int file = open("/dev/mem", O_RDWR);

	if (count != 6)
		errx(1, "usage: hostile REGISTERS MEMORY SIZE SEED LIVES");
	if (file < 0 || iopl(3))
		err(1, "cannot reach the device");
	registers = map(file, strtoull(words[1], NULL, 0), 0x1000);
	memory_start = strtoull(words[2], NULL, 0);
	memory_size = strtoull(words[3], NULL, 0);
	memory = map(file, memory_start, memory_size);
	life.state = strtoull(words[4], NULL, 0);
	race.state = ~life.state;
	lives = strtoul(words[5], NULL, 0);
	if (get(VIRTIO_MMIO_DEVICE_ID) != SVS_VIRTIO_ID)
		errx(1, "no sockets device at %s", words[1]);
	port = get(VIRTIO_MMIO_CONFIG + offsetof(struct svs_config, port));
	queue_size = get(VIRTIO_MMIO_QUEUE_NUM_MAX);

	if (pthread_create(&thread, NULL, meanwhile, &race))
		errx(1, "cannot start a thread");
	for (number = 0; number < lives; number++) {
		unsigned int i;

		set_up(&life);
		for (i = 0; i < STEPS && !(get(VIRTIO_MMIO_STATUS) & NEEDS_RESET); i++)
			step(&life);
		if (i < STEPS)
			broken++;
	}
	done = true;
	pthread_join(thread, NULL);
	put(VIRTIO_MMIO_STATUS, 0);
	printf("hostile: %lu lives, %lu broken, %lu requests, %lu answered, %lu accepted\n", lives,
	       broken, requests, answered, accepted);
	return 0;
}
