package trial

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	dra "k8s.io/kubelet/pkg/apis/dra/v1"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"steadyvm/k8s/internal/reservation"
)

const driverAccount = "dra-driver-steadyvm"

// node is a host with our driver. The check stands in for its kubelet: it makes pods' cgroups, and calls the plugin.
type node struct {
	cluster *Cluster
	name    string
	// place has its files: etc/steadyvm.toml, run/steadyvm.d, kubelet's directories of plugins.
	place   string
	cgroups string
	driver  *process
	listen  string
	made    []string
}

// newNode makes the node's object, and its host's file.
func (c *Cluster) newNode(ctx context.Context, name, file string) (*node, error) {
	own := &node{cluster: c, name: name, place: filepath.Join(c.Place, "nodes", name), cgroups: unified()}
	for _, directory := range []string{"etc", "run/steadyvm.d", "plugins", "registry"} {
		if err := os.MkdirAll(filepath.Join(own.place, directory), 0o755); err != nil {
			return nil, err
		}
	}
	if err := os.WriteFile(own.file(), []byte(file), 0o644); err != nil {
		return nil, err
	}
	object := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: name, Labels: map[string]string{"kubernetes.io/hostname": name},
	}}
	nodes := c.admin.CoreV1().Nodes()
	if _, err := nodes.Create(ctx, object, metav1.CreateOptions{}); err != nil {
		return nil, err
	}
	// By patches: controllers write to new nodes, too. The admission of new nodes marks them as not ready, which kubelet's
	// reports would undo.
	ready := []byte(`{"spec":{"taints":null}}`)
	if _, err := nodes.Patch(ctx, name, types.MergePatchType, ready, metav1.PatchOptions{}); err != nil {
		return nil, err
	}
	return own, c.setRoom(ctx, name, quantity("256Gi"))
}

// setRoom says in kubelet's stead what a node has.
func (c *Cluster) setRoom(ctx context.Context, node string, memory resource.Quantity) error {
	room := corev1.ResourceList{
		corev1.ResourceCPU: quantity("64"), corev1.ResourceMemory: memory, corev1.ResourcePods: quantity("1000"),
	}
	status, err := json.Marshal(map[string]corev1.NodeStatus{"status": {
		Allocatable: room, Capacity: room,
		Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
	}})
	if err != nil {
		return err
	}
	_, err = c.admin.CoreV1().Nodes().Patch(ctx, node, types.StrategicMergePatchType, status, metav1.PatchOptions{}, "status")
	return err
}

func (n *node) file() string         { return filepath.Join(n.place, "etc/steadyvm.toml") }
func (n *node) descriptions() string { return filepath.Join(n.place, "run/steadyvm.d") }

// Where cgroups of version 2 are; some hosts have both versions.
func unified() string {
	const both = "/sys/fs/cgroup/unified"
	if _, err := os.Stat(both); err == nil {
		return both
	}
	return "/sys/fs/cgroup"
}

// startDriver starts it with a token of its DaemonSet's pod on this node, so with its rights and no more.
func (n *node) startDriver(ctx context.Context) error {
	if n.listen == "" {
		port, err := freePort()
		if err != nil {
			return err
		}
		n.listen = fmt.Sprintf("127.0.0.1:%d", port)
		token, err := n.token(ctx)
		if err != nil {
			return err
		}
		if err := n.cluster.writeKubeconfig(n.name, clientcmdapi.AuthInfo{Token: token}); err != nil {
			return err
		}
	}
	var err error
	n.driver, err = start(n.cluster.Logs, "driver-"+n.name, n.cluster.Driver, "node",
		"--node="+n.name, "--kubeconfig="+n.cluster.kubeconfig(n.name), "--steadyvm="+n.cluster.Steadyvm,
		"--file="+n.file(), "--directory="+n.descriptions(), "--cgroups="+n.cgroups,
		"--plugins="+filepath.Join(n.place, "plugins"), "--registry="+filepath.Join(n.place, "registry"),
		"--listen="+n.listen, "--every=1s",
	)
	if err != nil {
		return err
	}
	return n.driver.until(ctx, "is registered and offers its CPUs", func(ctx context.Context) error {
		if err := n.register(ctx); err != nil {
			return err
		}
		slices, err := n.slices(ctx)
		if err == nil && len(slices) == 0 {
			err = errors.New("there is no ResourceSlice of the node")
		}
		return err
	})
}

func (n *node) token(ctx context.Context) (string, error) {
	pods := n.cluster.admin.CoreV1().Pods(namespace)
	var bound *authenticationv1.BoundObjectReference
	err := until(ctx, "the DaemonSet has a pod on "+n.name, func(ctx context.Context) error {
		list, err := pods.List(ctx, metav1.ListOptions{LabelSelector: "app=" + driverAccount})
		if err != nil {
			return err
		}
		for _, pod := range list.Items {
			if pod.Spec.NodeName == n.name {
				bound = &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: pod.Name, UID: pod.UID}
				return nil
			}
		}
		return fmt.Errorf("none of %d is there", len(list.Items))
	})
	if err != nil {
		return "", err
	}
	hours := int64(24 * 3600)
	asked := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &hours, BoundObjectRef: bound}}
	answer, err := n.cluster.admin.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, driverAccount, asked, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	return answer.Status.Token, nil
}

func (n *node) slices(ctx context.Context) ([]resourceapi.ResourceSlice, error) {
	chosen := metav1.ListOptions{FieldSelector: "spec.nodeName=" + n.name}
	list, err := n.cluster.admin.ResourceV1().ResourceSlices().List(ctx, chosen)
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

func dial(socket string) (*grpc.ClientConn, error) {
	return grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
}

// register does what kubelet does when it finds the plugin's socket.
func (n *node) register(ctx context.Context) error {
	connection, err := dial(filepath.Join(n.place, "registry", reservation.Driver+"-reg.sock"))
	if err != nil {
		return err
	}
	defer connection.Close()
	client := registration.NewRegistrationClient(connection)
	about, err := client.GetInfo(ctx, &registration.InfoRequest{})
	if err != nil {
		return err
	}
	if about.Type != registration.DRAPlugin || about.Name != reservation.Driver {
		return fmt.Errorf("what registers is %s %s", about.Type, about.Name)
	}
	_, err = client.NotifyRegistrationStatus(ctx, &registration.RegistrationStatus{PluginRegistered: true})
	return err
}

func (n *node) plugin(ctx context.Context, call func(context.Context, dra.DRAPluginClient) error) error {
	connection, err := dial(filepath.Join(n.place, "plugins", reservation.Driver, "dra.sock"))
	if err != nil {
		return err
	}
	defer connection.Close()
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return call(ctx, dra.NewDRAPluginClient(connection))
}

func asKubelet(claim *resourceapi.ResourceClaim) *dra.Claim {
	return &dra.Claim{Namespace: claim.Namespace, Name: claim.Name, Uid: string(claim.UID)}
}

// prepare is kubelet's call for one claim; the error is the driver's answer.
func (n *node) prepare(ctx context.Context, claim *resourceapi.ResourceClaim) error {
	return n.plugin(ctx, func(ctx context.Context, plugin dra.DRAPluginClient) error {
		request := &dra.NodePrepareResourcesRequest{Claims: []*dra.Claim{asKubelet(claim)}}
		answer, err := plugin.NodePrepareResources(ctx, request)
		if err != nil {
			return err
		}
		if said := answer.Claims[string(claim.UID)]; said == nil || said.Error != "" {
			return errors.New(said.GetError())
		}
		return nil
	})
}

func (n *node) unprepare(ctx context.Context, claim *resourceapi.ResourceClaim) error {
	return n.plugin(ctx, func(ctx context.Context, plugin dra.DRAPluginClient) error {
		request := &dra.NodeUnprepareResourcesRequest{Claims: []*dra.Claim{asKubelet(claim)}}
		answer, err := plugin.NodeUnprepareResources(ctx, request)
		if err != nil {
			return err
		}
		if said := answer.Claims[string(claim.UID)]; said == nil || said.Error != "" {
			return errors.New(said.GetError())
		}
		return nil
	})
}

// makeCgroup makes a pod's cgroup as kubelet's systemd driver names it.
func (n *node) makeCgroup(uid string) (string, error) {
	slice := "kubepods-pod" + strings.ReplaceAll(uid, "-", "_") + ".slice"
	path := filepath.Join(n.cgroups, "kubepods.slice", slice)
	if err := os.MkdirAll(path, 0o755); err != nil {
		return "", err
	}
	n.made = append(n.made, path)
	return "/kubepods.slice/" + slice, nil
}

// removeCgroups removes those that it has made.
func (n *node) removeCgroups() error {
	var failed []error
	for _, path := range n.made {
		if err := os.Remove(path); !errors.Is(err, os.ErrNotExist) {
			failed = append(failed, err)
		}
	}
	n.made = nil
	// Others may have pods there.
	_ = os.Remove(filepath.Join(n.cgroups, "kubepods.slice"))
	return errors.Join(failed...)
}
