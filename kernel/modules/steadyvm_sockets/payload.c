// SPDX-License-Identifier: GPL-2.0-only
/*
 * Payload of a request: the pages of the caller's buffer, which the host's kernel copies from or
 * to, once. Little is copied through the channel instead, and what cannot be described (memory of
 * the kernel on 6.1, pipes, vectors of very many pieces) through pages of our own.
 */
#include <linux/mm.h>
#include <linux/moduleparam.h>
#include <linux/slab.h>
#include <linux/uio.h>

#include "compat.h"
#include "internal.h"

/* Bytes copied at a time where pages cannot be described: a datagram fits. */
#define SVS_BOUNCE	SZ_64K

/* Payload segments of one request: with the two heads they fit into a queue of 256. */
#define SVS_SEGMENTS	250

static unsigned int svs_copy_below = SVS_COPY_MOST;
module_param_named(copy_below, svs_copy_below, uint, 0644);
MODULE_PARM_DESC(copy_below, "payload of fewer bytes is copied, of more described; at most 512 (512)");

static unsigned int svs_max_segments(void)
{
	unsigned int most = SVS_SEGMENTS;
	const struct svs_device *device;

	rcu_read_lock();
	device = rcu_dereference(svs_device);
	if (device)
		most = min(most, device->max_segments);
	rcu_read_unlock();
	return most;
}

static int svs_vector(struct svs_payload *payload, size_t segments)
{
	payload->segments = 0;
	payload->len = 0;
	payload->piece = NULL;
	payload->vector = payload->few;
	if (segments <= ARRAY_SIZE(payload->few))
		return 0;
	payload->vector = kmalloc_array(segments, sizeof(*payload->vector), GFP_KERNEL);
	return payload->vector ? 0 : -ENOMEM;
}

static void svs_add_segment(struct svs_payload *payload, struct page *page, size_t offset,
			    size_t len)
{
	payload->vector[payload->segments++] = (struct bio_vec) {
		.bv_page = page,
		.bv_len = len,
		.bv_offset = offset,
	};
	payload->len += len;
}

/*
 * The same for described pages: one that begins where the segment before it ends, in memory,
 * lengthens that. The host looks each segment up, and a buffer of many pages often has few pieces.
 * No page is twice in a segment: each is given back once.
 */
static void svs_add_page(struct svs_payload *payload, struct page *page, size_t offset, size_t len)
{
	struct bio_vec *last;

	if (payload->segments && !offset) {
		last = &payload->vector[payload->segments - 1];
		if (page_to_phys(last->bv_page) + last->bv_offset + last->bv_len ==
		    page_to_phys(page)) {
			last->bv_len += len;
			payload->len += len;
			return;
		}
	}
	svs_add_segment(payload, page, offset, len);
}

static void svs_give_segment(const struct bio_vec *segment, bool dirty)
{
	unsigned int pages = DIV_ROUND_UP(segment->bv_offset + segment->bv_len, PAGE_SIZE);
	unsigned int i;

	for (i = 0; i < pages; i++) {
		struct page *page = svs_nth_page(segment->bv_page, i);

		if (dirty && !PageDirty(page))
			set_page_dirty_lock(page);
		svs_give_page(page);
	}
}

static void svs_release_pages(struct svs_payload *payload, bool dirty)
{
	unsigned int i;

	for (i = 0; i < payload->segments; i++) {
		if (payload->source == SVS_PAGES_HELD)
			svs_give_segment(&payload->vector[i], dirty);
		else if (payload->source == SVS_PAGES_OWN)
			__free_page(payload->vector[i].bv_page);
	}
	if (payload->vector != payload->few)
		kfree(payload->vector);
}

/* Describes as much of the caller's memory as can be: payload->len bytes, perhaps none. */
static int svs_describe_pages(struct svs_payload *payload, struct iov_iter *iter, size_t len)
{
	unsigned int most = min_t(size_t, svs_max_segments(),
				  iov_iter_npages(iter, SVS_SEGMENTS));
	struct page *pages[16];
	int err;

	err = svs_vector(payload, most);
	if (err)
		return err;
	payload->source = svs_pages_are_held(iter) ? SVS_PAGES_HELD : SVS_PAGES_LISTED;
	while (payload->len < len && payload->segments < most) {
		unsigned int room = min_t(size_t, most - payload->segments, ARRAY_SIZE(pages));
		struct page **next = pages;
		size_t offset;
		ssize_t taken;

		taken = svs_take_pages(iter, pages, len - payload->len, room, &offset);
		if (taken <= 0)
			return taken;
		while (taken > 0) {
			size_t part = min_t(size_t, taken, PAGE_SIZE - offset);

			svs_add_page(payload, *next++, offset, part);
			taken -= part;
			offset = 0;
		}
	}
	return 0;
}

/**
 * svs_payload_room - room of our own for payload
 * @payload: to be filled in
 * @len: bytes; at most SVS_BOUNCE of them are provided
 *
 * Return: 0 or -ENOMEM. svs_payload_end() is called only after 0.
 */
int svs_payload_room(struct svs_payload *payload, size_t len)
{
	int err;

	len = min_t(size_t, len, SVS_BOUNCE);
	err = svs_vector(payload, DIV_ROUND_UP(len, PAGE_SIZE));
	if (err)
		return err;
	payload->source = SVS_PAGES_OWN;
	while (payload->len < len) {
		struct page *page = alloc_page(GFP_KERNEL | __GFP_ZERO);

		if (!page) {
			svs_release_pages(payload, false);
			return -ENOMEM;
		}
		svs_add_segment(payload, page, 0, min_t(size_t, len - payload->len, PAGE_SIZE));
	}
	return 0;
}

/* Room of our own, filled from the caller's memory where that is what is sent. */
static int svs_bounce(struct svs_payload *payload, struct iov_iter *iter, size_t len)
{
	unsigned int i;
	int err;

	err = svs_payload_room(payload, len);
	if (err || iov_iter_rw(iter) == READ)
		return err;
	for (i = 0; i < payload->segments; i++) {
		const struct bio_vec *segment = &payload->vector[i];

		if (copy_page_from_iter(segment->bv_page, 0, segment->bv_len, iter) !=
		    segment->bv_len) {
			svs_release_pages(payload, false);
			return -EFAULT;
		}
	}
	return 0;
}

static int svs_copy(struct svs_payload *payload, struct iov_iter *iter, size_t len)
{
	payload->piece = payload->copy;
	payload->len = len;
	if (iov_iter_rw(iter) == WRITE && !copy_from_iter_full(payload->piece, len, iter))
		return -EFAULT;
	return 0;
}

/**
 * svs_payload_describe - the caller's memory as payload
 * @payload: to be filled in
 * @iter: the memory; its direction says which way
 * @len: bytes wanted, at most those of @iter
 * @whole: fewer will not do
 *
 * Moves @iter on; svs_payload_end() moves it to where it must be.
 *
 * Return: 0, -EFAULT, -EMSGSIZE where it is not possible to have all, -ENOMEM. After an error
 * there is nothing to end.
 */
int svs_payload_describe(struct svs_payload *payload, struct iov_iter *iter, size_t len,
			 bool whole)
{
	size_t before = iov_iter_count(iter);
	int err;

	if (len < min_t(size_t, READ_ONCE(svs_copy_below), SVS_COPY_MOST))
		return svs_copy(payload, iter, len);
	if (svs_can_describe(iter)) {
		err = svs_describe_pages(payload, iter, len);
		if (payload->len == len || (payload->len && !whole && err))
			return 0;
		/* Many small pieces: more of them fit into pages of our own. */
		if (!whole && payload->len >= min_t(size_t, len, SVS_BOUNCE))
			return 0;
		svs_release_pages(payload, false);
		iov_iter_revert(iter, before - iov_iter_count(iter));
		if (err)
			return err;
	}
	err = svs_bounce(payload, iter, len);
	if (!err && whole && payload->len < len) {
		svs_release_pages(payload, false);
		err = -EMSGSIZE;
	}
	return err;
}

/* Copies what came into our own memory to the caller's: how much of it. */
static size_t svs_copy_out(struct svs_payload *payload, struct iov_iter *iter, size_t moved)
{
	size_t copied = 0;
	unsigned int i;

	if (payload->piece)
		return copy_to_iter(payload->piece, moved, iter);
	for (i = 0; i < payload->segments && copied < moved; i++) {
		size_t part = min_t(size_t, payload->vector[i].bv_len, moved - copied);
		size_t now = copy_page_to_iter(payload->vector[i].bv_page, 0, part, iter);

		copied += now;
		if (now < part)
			break;
	}
	return copied;
}

/**
 * svs_payload_end - let the caller's memory go after the request
 * @payload: the payload
 * @iter: where it came from, or NULL where what came is thrown away
 * @moved: bytes of it that were sent or received
 *
 * Return: 0, and @iter is @moved bytes further than before; -EFAULT where a part of it was no
 * memory.
 */
int svs_payload_end(struct svs_payload *payload, struct iov_iter *iter, size_t moved)
{
	bool own = payload->piece || payload->source == SVS_PAGES_OWN;
	bool received = iter && iov_iter_rw(iter) == READ;
	int err = 0;

	if (received && own) {
		if (svs_copy_out(payload, iter, moved) < moved)
			err = -EFAULT;
	} else if (iter) {
		iov_iter_revert(iter, payload->len - moved);
	}
	if (!payload->piece)
		svs_release_pages(payload, received && moved);
	return err;
}

/**
 * svs_payload_put - copy payload in pages to memory that the host shares
 * @payload: the payload
 * @to: memory for all of it
 *
 * Any context: the pages are always mapped, as all are on x86-64.
 */
void svs_payload_put(const struct svs_payload *payload, void *to)
{
	unsigned int i;

	for (i = 0; i < payload->segments; i++) {
		const struct bio_vec *segment = &payload->vector[i];

		memcpy(to, page_address(segment->bv_page) + segment->bv_offset, segment->bv_len);
		to += segment->bv_len;
	}
}

/**
 * svs_payload_take - copy from memory that the host shares to payload in pages
 * @payload: the payload
 * @from: the memory, which is cleared: a wrong length shows nobody what another socket received
 * @len: bytes, at most those of @payload
 *
 * Any context.
 */
void svs_payload_take(const struct svs_payload *payload, void *from, size_t len)
{
	unsigned int i;

	for (i = 0; i < payload->segments && len; i++) {
		const struct bio_vec *segment = &payload->vector[i];
		size_t part = min_t(size_t, segment->bv_len, len);

		memcpy(page_address(segment->bv_page) + segment->bv_offset, from, part);
		memset(from, 0, part);
		from += part;
		len -= part;
	}
}
