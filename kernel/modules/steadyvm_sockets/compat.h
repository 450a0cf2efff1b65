/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What differs between Linux 6.1, 6.12 and 7.3.
 */
#ifndef SVS_COMPAT_H
#define SVS_COMPAT_H

#include <linux/mm.h>
#include <linux/net.h>
#include <linux/poll.h>
#include <linux/timer.h>
#include <linux/uio.h>
#include <linux/version.h>
#include <linux/virtio_config.h>

/* 6.10: accept() takes its flags in a structure. */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 10, 0)
#define SVS_ACCEPT_ARGUMENTS	struct proto_accept_arg *arg
#define SVS_ACCEPT_FLAGS	(arg->flags)
#define SVS_ACCEPT_KERN		(arg->kern)
#else
#define SVS_ACCEPT_ARGUMENTS	int flags, bool kern
#define SVS_ACCEPT_FLAGS	(flags)
#define SVS_ACCEPT_KERN		(kern)
#endif

/* 6.19: addresses of bind() and connect() are of a type that claims no length. */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 19, 0)
#define svs_sockaddr		sockaddr_unsized
#else
#define svs_sockaddr		sockaddr
#endif

/* 6.18: the pages of a segment are next to each other in the memory map, too. */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 18, 0)
#define svs_nth_page(_page, _n)	((_page) + (_n))
#else
#define svs_nth_page(_page, _n)	nth_page(_page, _n)
#endif

/* 7.3 has no poll_does_not_wait() any more. */
static inline bool svs_poll_does_not_wait(const poll_table *wait)
{
	return !wait || !wait->_qproc;
}

/* 6.2: del_timer_sync() has this name; 7.3 has no other. */
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 2, 0)
#define timer_delete_sync	del_timer_sync
#endif

/* 6.5: sendpage is MSG_SPLICE_PAGES of sendmsg; before, its fallback calls sendmsg. */
#ifndef MSG_SPLICE_PAGES
#define MSG_SPLICE_PAGES	0
#define SVS_SENDPAGE		.sendpage = sock_no_sendpage,
#else
#define SVS_SENDPAGE
#endif

/* 6.6: a protocol says where its struct ipv6_pinfo is; before, it is last. */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 6, 0)
#define SVS_INET6_IS_AT(_type, _member)	.ipv6_pinfo_offset = offsetof(_type, _member),
#else
#define SVS_INET6_IS_AT(_type, _member)
#endif

/* 6.9: setsockopt(SOL_SOCKET) comes to the protocol, if it says so; before, see options.c. */
static inline void svs_take_socket_level(struct socket *sock)
{
#ifdef SOCK_CUSTOM_SOCKOPT
	set_bit(SOCK_CUSTOM_SOCKOPT, &sock->flags);
#endif
}

/* 6.11: virtio_find_vqs() takes a structure for each queue. */
static inline int svs_find_queues(struct virtio_device *vdev, unsigned int count,
				  struct virtqueue **queues, const char *const *names)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 11, 0)
	struct virtqueue_info *info;
	unsigned int i;
	int err;

	info = kcalloc(count, sizeof(*info), GFP_KERNEL);
	if (!info)
		return -ENOMEM;
	for (i = 0; i < count; i++)
		info[i].name = names[i];
	err = virtio_find_vqs(vdev, count, queues, info, NULL);
	kfree(info);
	return err;
#else
	vq_callback_t **callbacks;
	int err;

	callbacks = kcalloc(count, sizeof(*callbacks), GFP_KERNEL);
	if (!callbacks)
		return -ENOMEM;
	err = virtio_find_vqs(vdev, count, queues, callbacks, names, NULL);
	kfree(callbacks);
	return err;
#endif
}

/*
 * 6.3: iov_iter_extract_pages() describes kernel memory too, and pins that of users. Before, pages
 * of users only, by reference.
 */
static inline bool svs_can_describe(const struct iov_iter *iter)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 3, 0)
	return user_backed_iter(iter) || iov_iter_is_bvec(iter);
#else
	return user_backed_iter(iter);
#endif
}

static inline ssize_t svs_take_pages(struct iov_iter *iter, struct page **pages, size_t len,
				     unsigned int count, size_t *offset)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 3, 0)
	return iov_iter_extract_pages(iter, &pages, len, count, 0, offset);
#else
	return iov_iter_get_pages2(iter, pages, len, count, offset);
#endif
}

/* Whether svs_give_page() has something to give back. */
static inline bool svs_pages_are_held(const struct iov_iter *iter)
{
	return user_backed_iter(iter);
}

static inline void svs_give_page(struct page *page)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 3, 0)
	unpin_user_page(page);
#else
	put_page(page);
#endif
}

#endif
