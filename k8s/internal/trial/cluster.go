package trial

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

const (
	schedulers      = 2
	looksAgainAfter = "10s"
)

// Cluster is a control plane.
type Cluster struct {
	// Programs has the control plane's, Driver and Steadyvm are ours.
	Programs, Driver, Steadyvm string
	// Place has all that it writes but logs; it is emptied before.
	Place, Logs string
	// Source is the directory k8s of the repository.
	Source string
	// Lease is how long a scheduler leads without a word: short where one is killed, long where many nodes keep the machine busy.
	Lease time.Duration
	// PercentOfNodes is how many of the nodes a scheduler finds room on before it chooses; 0: its own choice.
	PercentOfNodes int

	authority           *authority
	etcdPort, peerPort  int
	apiPort             int
	etcd, api, managers *process
	schedulers          [schedulers]*process
	admin               kubernetes.Interface
	config              *rest.Config
}

// Up starts all of it.
func (c *Cluster) Up(ctx context.Context) error {
	for _, directory := range []string{c.Place, c.Logs} {
		if err := os.RemoveAll(directory); err != nil {
			return err
		}
	}
	if err := c.certify(); err != nil {
		return err
	}
	for _, port := range []*int{&c.etcdPort, &c.peerPort, &c.apiPort} {
		var err error
		if *port, err = freePort(); err != nil {
			return err
		}
	}
	if err := c.configure(); err != nil {
		return err
	}
	if err := c.startEtcd(); err != nil {
		return err
	}
	if err := c.StartAPI(ctx); err != nil {
		return err
	}
	if err := c.startManagers(); err != nil {
		return err
	}
	for number := range schedulers {
		if err := c.StartScheduler(number); err != nil {
			return err
		}
	}
	return c.awaitSchedulers(ctx)
}

// Down ends all of it, in the order that lets each say good-bye.
func (c *Cluster) Down() error {
	var failed []error
	for _, own := range append(c.schedulers[:], c.managers, c.api, c.etcd) {
		if own != nil {
			failed = append(failed, own.stop())
		}
	}
	return errors.Join(failed...)
}

func (c *Cluster) certify() error {
	var err error
	if c.authority, err = newAuthority(filepath.Join(c.Place, "certificates")); err != nil {
		return err
	}
	for name, identity := range map[string][]string{
		"server":    {"kube-apiserver"},
		"etcd":      {"etcd"},
		"webhook":   {"steadyvm-webhook"},
		"accounts":  {"service-accounts"},
		"admin":     {"admin", "system:masters"},
		"managers":  {"system:kube-controller-manager"},
		"scheduler": {"system:kube-scheduler"},
	} {
		if err := c.authority.issue(name, identity[0], identity[1:]...); err != nil {
			return err
		}
	}
	return nil
}

// configure writes kubeconfigs, and makes the administrator's client.
func (c *Cluster) configure() error {
	for _, name := range []string{"admin", "managers", "scheduler"} {
		user := clientcmdapi.AuthInfo{
			ClientCertificate: c.authority.path(name + ".crt"),
			ClientKey:         c.authority.path(name + ".key"),
		}
		if err := c.writeKubeconfig(name, user); err != nil {
			return err
		}
	}
	scheduler, err := json.MarshalIndent(map[string]any{
		"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration",
		"clientConnection":         map[string]any{"kubeconfig": c.kubeconfig("scheduler"), "qps": 500, "burst": 500},
		"percentageOfNodesToScore": c.PercentOfNodes,
	}, "", " ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(c.schedulerConfig(), scheduler, 0o644); err != nil {
		return err
	}
	if c.config, err = clientcmd.BuildConfigFromFlags("", c.kubeconfig("admin")); err != nil {
		return err
	}
	// What many users ask at once, one client asks here.
	c.config.QPS, c.config.Burst = 1000, 1000
	c.config.WarningHandler = rest.NoWarnings{}
	c.admin, err = kubernetes.NewForConfig(c.config)
	return err
}

func (c *Cluster) writeKubeconfig(name string, user clientcmdapi.AuthInfo) error {
	return clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{"trial": {
			Server:               fmt.Sprintf("https://127.0.0.1:%d", c.apiPort),
			CertificateAuthority: c.authority.path("ca.crt"),
		}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{name: &user},
		Contexts:       map[string]*clientcmdapi.Context{"trial": {Cluster: "trial", AuthInfo: name}},
		CurrentContext: "trial",
	}, c.kubeconfig(name))
}

func (c *Cluster) kubeconfig(name string) string { return filepath.Join(c.Place, name+".kubeconfig") }

func (c *Cluster) schedulerConfig() string { return filepath.Join(c.Place, "scheduler.json") }

// Kubeconfig is the administrator's.
func (c *Cluster) Kubeconfig() string { return c.kubeconfig("admin") }

func (c *Cluster) startEtcd() error {
	client := fmt.Sprintf("https://127.0.0.1:%d", c.etcdPort)
	// Its peers are none, but it listens for them.
	peer := fmt.Sprintf("http://127.0.0.1:%d", c.peerPort)
	var err error
	c.etcd, err = start(c.Logs, "etcd", filepath.Join(c.Programs, "etcd"),
		"--data-dir="+filepath.Join(c.Place, "etcd"),
		"--listen-client-urls="+client, "--advertise-client-urls="+client,
		"--listen-peer-urls="+peer, "--initial-advertise-peer-urls="+peer, "--initial-cluster=default="+peer,
		"--cert-file="+c.authority.path("etcd.crt"), "--key-file="+c.authority.path("etcd.key"),
		"--client-cert-auth", "--trusted-ca-file="+c.authority.path("ca.crt"),
	)
	return err
}

// StartAPI starts the API server, and waits until it is ready.
func (c *Cluster) StartAPI(ctx context.Context) error {
	var err error
	c.api, err = start(c.Logs, "kube-apiserver", filepath.Join(c.Programs, "kube-apiserver"),
		"--bind-address=127.0.0.1", "--secure-port="+strconv.Itoa(c.apiPort),
		// Nothing inside of this cluster looks for it.
		"--endpoint-reconciler-type=none",
		fmt.Sprintf("--etcd-servers=https://127.0.0.1:%d", c.etcdPort),
		"--etcd-cafile="+c.authority.path("ca.crt"),
		"--etcd-certfile="+c.authority.path("server.crt"), "--etcd-keyfile="+c.authority.path("server.key"),
		"--tls-cert-file="+c.authority.path("server.crt"), "--tls-private-key-file="+c.authority.path("server.key"),
		"--client-ca-file="+c.authority.path("ca.crt"),
		"--authorization-mode=Node,RBAC", "--anonymous-auth=false",
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file="+c.authority.path("accounts.crt"),
		"--service-account-signing-key-file="+c.authority.path("accounts.key"),
		"--service-cluster-ip-range=10.96.0.0/16",
	)
	if err != nil {
		return err
	}
	return c.api.until(ctx, "is ready", func(ctx context.Context) error {
		return c.admin.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
	})
}

func (c *Cluster) startManagers() error {
	var err error
	c.managers, err = start(c.Logs, "kube-controller-manager", filepath.Join(c.Programs, "kube-controller-manager"),
		"--bind-address=127.0.0.1", "--secure-port=0", "--leader-elect=false",
		"--kubeconfig="+c.kubeconfig("managers"), "--use-service-account-credentials",
		"--root-ca-file="+c.authority.path("ca.crt"),
		"--service-account-private-key-file="+c.authority.path("accounts.key"),
		// No kubelet says that the nodes live.
		"--controllers=*,-node-lifecycle-controller",
		"--kube-api-qps=500", "--kube-api-burst=500",
	)
	return err
}

// StartScheduler starts one of the two, of which one leads.
func (c *Cluster) StartScheduler(number int) error {
	var err error
	name := fmt.Sprintf("kube-scheduler-%d", number)
	c.schedulers[number], err = start(c.Logs, name, filepath.Join(c.Programs, "kube-scheduler"),
		"--bind-address=127.0.0.1", "--secure-port=0", "--config="+c.schedulerConfig(),
		"--leader-elect=true", "--leader-elect-lease-duration="+c.Lease.String(),
		"--leader-elect-renew-deadline="+(c.Lease*2/3).String(), "--leader-elect-retry-period="+(c.Lease/6).String(),
		// Where no event tells it of room it looks again, by itself after 5 minutes. Nobody waits so long here.
		"--pod-max-in-unschedulable-pods-duration="+looksAgainAfter,
	)
	return err
}

// revive starts schedulers that have ended: one that could not renew its lease does.
func (c *Cluster) revive() error {
	for number, own := range c.schedulers {
		select {
		case <-own.ended:
			if err := c.StartScheduler(number); err != nil {
				return err
			}
		default:
		}
	}
	return nil
}

// takeTurn makes one of the two lead: while the other is down, whoever renews the lease is the one.
func (c *Cluster) takeTurn(ctx context.Context, number int) error {
	other := 1 - number
	if err := c.schedulers[other].stop(); err != nil {
		return err
	}
	since := time.Now()
	err := c.schedulers[number].until(ctx, "leads", func(ctx context.Context) error {
		lease, err := c.admin.CoordinationV1().Leases("kube-system").Get(ctx, "kube-scheduler", metav1.GetOptions{})
		if err != nil {
			return err
		}
		held := lease.Spec.HolderIdentity != nil && *lease.Spec.HolderIdentity != ""
		if renewed := lease.Spec.RenewTime; !held || renewed == nil || !renewed.After(since) {
			return errors.New("its lease is not renewed")
		}
		return nil
	})
	return errors.Join(err, c.StartScheduler(other))
}

func (c *Cluster) awaitSchedulers(ctx context.Context) error {
	return until(ctx, "a kube-scheduler leads", func(ctx context.Context) error {
		lease, err := c.admin.CoordinationV1().Leases("kube-system").Get(ctx, "kube-scheduler", metav1.GetOptions{})
		if err == nil && (lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity == "") {
			return errors.New("its lease has no holder")
		}
		return err
	})
}

// freePort is one that nobody has on loopback. Who takes it in between makes the start fail, by name.
func freePort() (int, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	port := listener.Addr().(*net.TCPAddr).Port
	return port, listener.Close()
}
